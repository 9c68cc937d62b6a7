"""What a step does to state of which every replica has its own copy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from distbench.evidence import Evidence
from distbench.trace import INITIAL, WHOLE, Trace, TraceKey, VariableInfo
from distbench.trace.numbers import Array, are_equal, densify


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Copy:
    """One copy of a variable before and after a step."""

    before: Array
    after: Array

    @property
    def change(self) -> Array:
        """What the step added."""
        return self.after - self.before


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Changes:
    """What a step does to a variable of which every replica has its own copy.

    Attributes:
        key: Step and variable; replica `WHOLE`.
        info: The variable.
        whole: On one device, for the global batch.
        shards: On one device, for each shard alone, from what it left the step before;
            of what trains as the mean of its copies, from what the global batch left.
        replicas: On the cluster, from what each replica held itself.
    """

    key: TraceKey
    info: VariableInfo
    whole: Copy
    shards: tuple[Copy, ...]
    replicas: tuple[Copy, ...]

    @property
    def is_shared(self) -> bool:
        """Whether all replicas change it alike, although shards alone would not.

        Then it is computed from something that was reduced before, and each copy has to
        hold what one device has, unless the copies are read as their sum. If shards
        alone change it alike as well, equal counts of equal shards may be the reason.
        """
        return (
            not self.info.adds_up
            and not change_alike(self.shards)
            and change_alike(self.replicas)
        )

    @property
    def counts_updates(self) -> bool:
        """Whether every update adds the same to it, or leaves it as many from anew."""
        copies = (*self.shards, *self.replicas)
        return bool(np.any(self.whole.after)) and all(
            are_equal(copy.change, self.whole.change)
            and are_equal(copy.after, self.whole.after)
            for copy in copies
        )


def change_alike(copies: Sequence[Copy]) -> bool:
    """Whether all copies are the same before a step and after it."""
    first = copies[0]
    return all(
        are_equal(copy.before, first.before) and are_equal(copy.after, first.after)
        for copy in copies
    )


def find_changes(evidence: Evidence, info: VariableInfo, step: int) -> Changes | None:
    """What a step does to each copy; None where it is shared or not all are known."""
    if info.synchronised:
        return None
    key = TraceKey(step=step, phase=info.role, variable=info.path)
    reference, everyone = evidence.reference, range(evidence.observed.replicas)
    keys = [replace(key, replica=r) for r in everyone]
    found = [
        _find_copy(reference, key),
        *(_find_copy(reference, k) for k in keys),
        *(_find_copy(evidence.observed, k) for k in keys),
    ]
    copies = [copy for copy in found if copy is not None]
    shapes = {array.shape for c in copies for array in (c.before, c.after)}
    if len(copies) < len(found) or len(shapes) > 1:
        return None
    shards = copies[1 : 1 + len(everyone)]
    if info.is_mean_of_copies:
        shards = [replace(shard, before=copies[0].before) for shard in shards]
    return Changes(
        key=key,
        info=info,
        whole=copies[0],
        shards=tuple(shards),
        replicas=tuple(copies[1 + len(everyone) :]),
    )


def list_changes(evidence: Evidence) -> Iterator[Changes]:
    """What each step does to each variable of which all copies are known."""
    for info in evidence.observed.variables:
        for step in range(evidence.observed.steps):
            changes = find_changes(evidence, info, step)
            if changes is not None:
                yield changes


def _find_copy(trace: Trace, key: TraceKey) -> Copy | None:
    start = trace.get(key.before)
    if start is None and key.step == 0:  # on one device all shards start alike
        start = trace.get(replace(key, step=INITIAL, replica=WHOLE))
    end = trace.get(key)
    if start is None or end is None:
        return None
    return Copy(before=densify(start), after=densify(end))
