"""Where a rule leads elsewhere because of the form in which a gradient came.

A sum of slices is one whoever adds it up, and so is what follows from it. If one device
leaves something else of a cluster's gradient in its own rows than of the same gradient
as it came, then N replicas do not arrive where one device does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from distbench.compare.arrays.bounds import find_roundoff
from distbench.compare.arrays.copies import have_same_rows
from distbench.compare.arrays.noise import Noise
from distbench.compare.pairs.expected import Expected
from distbench.details import Compared
from distbench.evidence import Evidence
from distbench.trace import (
    SUMMED,
    UPDATED,
    WHOLE,
    Phase,
    SparseRows,
    TraceKey,
    Value,
)
from distbench.trace.numbers import (
    Array,
    densify,
    measure_errors,
    measure_finite,
    measure_size,
    name_value,
)

_ROUNDINGS = 16
"""Of the largest element: dense and sparse kernels of one rule write it in other ops,
and a rule that takes a row's slices one by one rounds after each of them."""

_SURE = 4
"""How much farther a sum of slices may lead than one that was moved at random by its
largest error."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Apart:
    """A value that follows from a gradient as it came, and not from its sum.

    Attributes:
        key: Where it was observed.
        source: The phase of the gradient.
        came: What one device leaves of the gradient as it came, as the cluster did.
        due: What it leaves of the gradient in its own rows.
        base: The state before; 0 for a gradient.
        bound: How far apart the two may lie.
        dtype: Dtype in which it was computed.
    """

    key: TraceKey
    source: Phase
    came: Array
    due: Array
    base: Array | float
    bound: float
    dtype: str

    @property
    def error(self) -> float:
        """The largest error of an element."""
        return measure_size(measure_errors(self.came, self.due))


def find_apart(
    evidence: Evidence, noise: Noise, compared: tuple[Compared, ...]
) -> tuple[Apart, ...]:
    """Values that a rule made otherwise of gradients which are right, in causal order.

    Args:
        evidence: What was observed and expected.
        noise: Of the single-device run.
        compared: What a judgement compared: it tells which gradients are right.
    """
    if not evidence.fed.formed:
        return ()
    formed = evidence.fed.formed[0]
    [source] = (phase for phase in SUMMED if phase == formed.notes["phase"])
    comparing = _Comparing(evidence, noise, source)
    right: dict[tuple[int, int], bool] = {}
    found: list[Apart] = []
    for key in sorted(formed.values, key=lambda key: key.order):
        place = key.step, key.replica
        if place not in right:
            right[place] = _are_right(evidence, compared, source, *place)
        if right[place] and (apart := comparing.compare(key)) is not None:
            found.append(apart)
    return tuple(found)


def list_other_forms(
    evidence: Evidence, source: Phase, step: int, replica: int
) -> Iterator[tuple[TraceKey, Value, Value]]:
    """Gradients in other rows than one device's, and these, of a step and replica."""
    for key, seen in evidence.observed.select(step=step, phase=source, replica=replica):
        own = evidence.reference.get(key.at(WHOLE))
        if own is not None and not have_same_rows(seen, own):
            yield key, seen, own


def _are_right(
    evidence: Evidence,
    compared: tuple[Compared, ...],
    source: Phase,
    step: int,
    replica: int,
) -> bool:
    """Whether the gradients in another form were held against something, and hold."""
    others = {
        key.variable for key, _, _ in list_other_forms(evidence, source, step, replica)
    }
    told: dict[str, bool] = {}
    for c in compared:
        if (
            c.step == step
            and c.phase in SUMMED
            and c.replica in (replica, WHOLE)
            and c.variable in others
        ):
            told[c.variable] = told.get(c.variable, True) and not c.wrong
    return bool(others) and all(told.get(name, False) for name in others)


class _Comparing:
    """Holds what follows from gradients as they came against what is due."""

    def __init__(self, evidence: Evidence, noise: Noise, source: Phase) -> None:
        self._evidence = evidence
        self._noise = noise
        self._source = source
        self._expected = Expected(evidence)
        self._infos = evidence.observed.by_path

    def compare(self, key: TraceKey) -> Apart | None:
        """What is apart at a place; None where nothing is, or another cause is."""
        info = self._infos.get(key.variable)
        if key.phase not in UPDATED or info is None or not info.synchronised:
            return None
        fed, observed = self._evidence.fed, self._evidence.observed.get(key)
        traces = (fed.replays.get(self._source), fed.formed[0])
        came, due = (None if t is None else t.get(key) for t in traces)
        if observed is None or came is None or due is None:
            return None
        if not self._expected.is_fed(key):
            return None
        seen, left, wanted = (densify(value) for value in (observed, came, due))
        dtype = name_value(observed)
        bound = self._find_bound(key, wanted, dtype)
        # What does not follow from the gradient as it came has another cause.
        if measure_size(measure_errors(seen, left)) > bound:
            return None
        if not measure_size(measure_errors(left, wanted)) > bound:
            return None
        before = self._evidence.get_before(key.step, key.phase, key.variable)
        return Apart(
            key=key,
            source=self._source,
            came=left,
            due=wanted,
            base=0.0 if before is None else densify(before),
            bound=bound,
            dtype=dtype,
        )

    def _find_bound(self, key: TraceKey, due: Array, dtype: str) -> float:
        """How far apart sums of the same slices in another order may lead.

        Where no sum rounds, the update does all the same, and in other ops. Twins that
        draw scatter, and the same gradient does not.
        """
        forms = list_other_forms(self._evidence, self._source, key.step, key.replica)
        most = max((_count_most(v) for _, *pair in forms for v in pair), default=1)
        u = find_roundoff(dtype)
        least = (_ROUNDINGS + most - 1) * u * measure_finite(due)
        moved = [trace.get(key) for trace in self._evidence.fed.formed[1:]]
        if not moved:
            return max(self._noise.find_margin(key, due).widest, least)
        far = [
            measure_size(measure_errors(densify(m), due))
            for m in moved
            if m is not None
        ]
        return max(_SURE * max(far, default=0.0), least)


def _count_most(value: Value) -> int:
    """How often the most frequent row of a value occurs."""
    if not isinstance(value, SparseRows) or not value.indices.size:
        return 1
    return int(np.unique(value.indices, return_counts=True)[1].max())
