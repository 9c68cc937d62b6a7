"""State that every replica holds for itself, by what all of them together add to it.

The total and count of a metric, an accumulator of the replica's own gradients: what
one replica holds has no counterpart on one device. What all replicas together add in a
step may have one: on one device each shard is run alone, and where the shards' changes,
added up or averaged, are the change of the whole batch, the replicas' changes must be
so too. State that all replicas change alike, because it is computed from something that
they reduced, must be that of one device. Other such state is not judged.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal

import numpy as np

from distbench.compare.bounds import find_roundoff
from distbench.compare.measure import BITWISE, Margin, measure_error
from distbench.compare.noise import Noise
from distbench.compare.pair import Pair
from distbench.compare.values import Array, are_equal, densify, measure_size
from distbench.evidence import Evidence
from distbench.trace import INITIAL, WHOLE, Trace, TraceKey, VariableInfo

TOTAL = "one device, what the step adds for the global batch"

Way = Literal["sum", "mean", "each"]
"""How copies make up what one device adds: added up, on average, or each by itself."""


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
        shards: On one device, for each shard alone, from what it left the step before.
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
            and not _change_alike(self.shards)
            and _change_alike(self.replicas)
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


def _change_alike(copies: Sequence[Copy]) -> bool:
    first = copies[0]
    return all(
        are_equal(copy.before, first.before) and are_equal(copy.after, first.after)
        for copy in copies
    )


def list_totals(evidence: Evidence, noise: Noise) -> Iterator[Pair]:
    """A pair for each step and variable of which one device tells the total."""
    infos = evidence.observed.variables
    if all(info.synchronised for info in infos):
        return
    for step in range(evidence.observed.steps):
        found = [find_changes(evidence, info, step) for info in infos]
        for is_own, group in groupby(found, key=lambda changes: changes is not None):
            # State that every replica has for itself, one beside the other.
            block = [changes for changes in group if changes is not None]
            if is_own:
                yield from _pair_block(evidence, noise, block)


def _pair_block(
    evidence: Evidence, noise: Noise, block: Sequence[Changes]
) -> Iterator[Pair]:
    owners = {path: m.name for m in evidence.observed.metrics for path in m.state}
    counts = [changes for changes in block if _counts(evidence, changes)]
    for changes in block:
        # Of a metric its own counts tell, and no others.
        owner = owners.get(changes.info.path)
        counted = any(
            count is not changes and owners.get(count.info.path) == owner
            for count in counts
        )
        yield from _pair_total(evidence, noise, changes, counted)


def _counts(evidence: Evidence, changes: Changes) -> bool:
    """Whether it is a count of updates, and no constant."""
    first = evidence.reference.get(replace(changes.key, step=INITIAL, replica=WHOLE))
    is_moved = first is None or not are_equal(densify(first), changes.whole.after)
    return is_moved and changes.counts_updates


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
    return Changes(
        key=key,
        info=info,
        whole=copies[0],
        shards=tuple(copies[1 : 1 + len(everyone)]),
        replicas=tuple(copies[1 + len(everyone) :]),
    )


def _find_copy(trace: Trace, key: TraceKey) -> Copy | None:
    start = trace.get(replace(key, step=key.step - 1 if key.step > 0 else INITIAL))
    if start is None and key.step == 0:  # on one device all shards start alike
        start = trace.get(replace(key, step=INITIAL, replica=WHOLE))
    end = trace.get(key)
    if start is None or end is None:
        return None
    return Copy(before=densify(start), after=densify(end))


def list_idle(evidence: Evidence) -> Iterator[tuple[int, str]]:
    """Steps and variables that nobody changes, on one device or on the cluster."""
    for info in evidence.observed.variables:
        for step in range(evidence.observed.steps):
            changes = find_changes(evidence, info, step)
            if changes is None:
                continue
            copies = (changes.whole, *changes.shards, *changes.replicas)
            if not any(np.any(copy.change) for copy in copies):
                yield step, info.path


def list_extremes(evidence: Evidence, noise: Noise) -> Iterator[tuple[int, str]]:
    """Steps and variables that hold the largest, or the smallest, of all examples.

    On one device it is that of what the shards leave, which neither adds up nor has a
    mean; on the cluster it is right if it is that of the copies, or their sum.
    """
    for info in evidence.observed.variables:
        if not info.adds_up:
            continue
        for step in range(evidence.observed.steps):
            changes = find_changes(evidence, info, step)
            if changes is None or _find_way(evidence, noise, changes) is not None:
                continue
            allowed = _find_noise(noise, changes)
            parts = _measure_rounding(changes, changes.shards)
            copies = _measure_rounding(changes, changes.replicas)
            if is_extreme(changes, changes.shards, allowed + parts) and (
                is_extreme(changes, changes.replicas, allowed + copies)
                or _is_sum(changes, allowed + copies)
            ):
                yield step, info.path


def list_given_alike(evidence: Evidence, noise: Noise) -> Iterator[tuple[int, str]]:
    """Steps and variables to which each replica adds what the whole adds, N times.

    Nobody can tell from the shards whether that is one addend too many, or one that a
    count beside it divides by: what is made of it tells.
    """
    for info in evidence.observed.variables:
        if not info.adds_up:
            continue
        for step in range(evidence.observed.steps):
            changes = find_changes(evidence, info, step)
            if changes is None or not _change_alike(changes.replicas):
                continue
            own = changes.replicas[:1]
            allowed = _find_noise(noise, changes) + _measure_rounding(changes, own)
            apart = np.abs(own[0].change - changes.whole.change)
            if np.all(apart <= allowed) and _find_way(evidence, noise, changes) is None:
                yield step, info.path


def is_extreme(
    changes: Changes, copies: Sequence[Copy], allowed: Array | float
) -> bool:
    """Whether the global batch leaves the largest, or smallest, of what copies hold."""
    held = [copy.after for copy in copies]
    whole = changes.whole.after
    return any(
        bool(np.all(np.abs(end - whole) <= allowed))
        for end in (np.max(held, axis=0), np.min(held, axis=0))
    )


def _is_sum(changes: Changes, allowed: Array | float) -> bool:
    total = np.sum([copy.after for copy in changes.replicas], axis=0)
    return bool(np.all(np.abs(total - changes.whole.after) <= allowed))


def _pair_total(
    evidence: Evidence, noise: Noise, changes: Changes, counted: bool
) -> Iterator[Pair]:
    """What the replicas add, as a sum or as a mean, against the global batch's.

    Args:
        evidence: What was observed and expected.
        noise: Of the single-device run.
        changes: What the step does to each copy.
        counted: Whether a count of updates stands beside it. Fed with N times its share
            by every replica, as tutorials do it, a mean divides by that count.
    """
    found = _find_way(evidence, noise, changes)
    if found is None:
        return
    way, rest = found
    terms = [copy.change for copy in changes.replicas]
    margin = _bound_total(evidence, noise, changes, rest)
    pair = Pair(
        key=changes.key,
        relation="total",
        against=TOTAL,
        observed=np.asarray(np.sum(terms, axis=0)),
        expected=changes.whole.change,
        margin=margin,
        dtype=changes.info.dtype,
        terms=tuple(terms),
    )
    is_mean = changes.info.is_carried and changes.info.averages
    if way != "sum" or counted or is_mean:
        n = len(terms)
        shares = tuple(np.asarray(term / n) for term in terms)
        mean = replace(pair, observed=np.asarray(pair.observed / n), terms=shares)
        may_be = way == "mean" or not is_total_wrong(mean)
        if way == "each" or is_mean or (may_be and _is_nearer(mean, pair)):
            pair = mean
    yield pair


def _find_way(
    evidence: Evidence, noise: Noise, changes: Changes
) -> tuple[Way, Array] | None:
    """How the shards' changes make up the whole's on one device.

    A variable that is read as the sum of its copies, and of which each shard gives a
    mean, can only be divided by a count: what comes out is the mean over the replicas.

    Returns:
        The way, and what is left between them, which is rounding; None where they do
        neither, or so little that both a sum and a mean would do.
    """
    if changes.is_shared:
        return "each", np.zeros_like(changes.whole.change)
    n = len(changes.shards)
    allowed = _find_noise(noise, changes) + _measure_rounding(changes, changes.shards)

    def measure(weights: Sequence[float]) -> Array:
        parts = [w * c.change for w, c in zip(weights, changes.shards, strict=True)]
        mean = np.sum(parts, axis=0) / sum(weights)
        return np.asarray(np.abs(mean - changes.whole.change))

    total = np.sum([copy.change for copy in changes.shards], axis=0)
    whole = np.asarray(np.abs(total - changes.whole.change))
    even = measure([1.0] * n)
    adds, averages = bool(np.all(whole <= allowed)), bool(np.all(even <= allowed))
    if adds != averages or n == 1:
        return ("sum", whole) if adds else ("mean", even) if averages else None
    if adds or not changes.info.adds_up:
        return None
    by_size = measure(evidence.reference.get_shards(changes.key.step))
    return ("mean", by_size) if np.all(by_size <= allowed) else None


def _bound_total(
    evidence: Evidence, noise: Noise, changes: Changes, rest: Array
) -> Margin:
    """Noise of one device, what its own split leaves, and the replicas' roundings."""
    if noise.exact or _is_representable(evidence, changes, rest):
        return BITWISE
    rounding = _measure_rounding(changes, changes.replicas)
    return Margin(bound=_find_noise(noise, changes) + rest + rounding)


def _find_noise(noise: Noise, changes: Changes) -> Array | float:
    """Noise of all steps so far: nothing sets a replica's own state right between."""
    key, after = changes.key, changes.whole.after
    steps = range(key.step + 1)
    return sum(noise.find_margin(replace(key, step=s), after).bound for s in steps)


def _measure_rounding(changes: Changes, copies: Sequence[Copy]) -> Array:
    """Copies are stored rounded, before and after: |fl(x) - x| ≤ u |fl(x)|."""
    u = find_roundoff(changes.info.dtype)
    sizes = [np.abs(copy.before) + np.abs(copy.after) for copy in copies]
    return np.asarray(u * np.sum(sizes, axis=0))


def _is_representable(evidence: Evidence, changes: Changes, rest: Array) -> bool:
    """Whether no sum can have rounded: all are multiples of one unit, none too large.

    Counts are. To tell them from numbers that happen to end in zeros, half of their
    digits must be left free, and every twin must repeat them but for its perturbation.
    """
    copies = (changes.whole, *changes.shards, *changes.replicas)
    arrays = [array for copy in copies for array in (copy.before, copy.after)]
    top = sum(measure_size(array) for array in arrays)
    if np.any(rest) or not math.isfinite(top):
        return False
    u = find_roundoff(changes.info.dtype)
    unit = 2.0 ** math.ceil(math.log2(top * math.sqrt(u))) if top * u > 0 else 1.0
    twins = [value for t in evidence.twins if (value := t.get(changes.key)) is not None]
    return all(not np.any(array % unit) for array in arrays) and all(
        are_equal(np.round(densify(value) / unit) * unit, changes.whole.after)
        for value in twins
    )


def _is_nearer(pair: Pair, other: Pair) -> bool:
    return measure_size(pair.observed - pair.expected) < measure_size(
        other.observed - other.expected
    )


def is_total_wrong(pair: Pair) -> bool:
    """Whether a total is beyond its margin."""
    return measure_error(pair.observed, pair.expected, pair.margin).wrong
