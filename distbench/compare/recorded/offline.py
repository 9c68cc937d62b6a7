"""Two recorded runs, place by place in causal order.

They need not have the same number of replicas. Then losses and local gradients are
added up over the replicas, and what every replica holds for itself is held against what
the other run's first replica, or its one device, holds. What a replica has for itself
is added up or averaged, unless the first copy stands for all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import groupby

import numpy as np
import numpy.typing as npt

from distbench.compare.arrays.aligned import align_pair
from distbench.compare.arrays.copies import are_same
from distbench.compare.arrays.likeness import (
    Before,
    Likeness,
    find_half,
    find_noise,
    measure_likeness,
)
from distbench.compare.recorded.places import (
    Place,
    RunDifference,
    mark_undone,
    may_lack,
)
from distbench.errors import BadInputError, count_things
from distbench.trace import (
    INITIAL,
    STATE,
    SUMMED,
    WHOLE,
    Phase,
    Selection,
    SparseRows,
    Trace,
    TraceKey,
    Value,
    Values,
)
from distbench.trace.dtypes import is_floating
from distbench.trace.naming import pair_runs
from distbench.trace.numbers import densify, measure_finite, name_value
from distbench.trace.shards import join_shards


def compare_traces(
    a: Trace, b: Trace, selection: Selection | None = None, narrow: str | None = None
) -> RunDifference:
    """Compare two traces.

    Args:
        a: The trace of the first run.
        b: That of the second run, whose values count as the expected ones.
        selection: Which places; by default all.
        narrow: A dtype in which the steps computed, if it is narrower than that of the
            variables.

    Raises:
        BadInputError: Digests can be held against digests alone, replica by replica.
    """
    if (a.digested or b.digested) and (
        a.digested != b.digested or a.replicas != b.replicas
    ):
        raise BadInputError(
            "Digests only tell whether bits are the same. Expected: two traces with "
            "digests, of the same number of replicas. Received: "
            f"{_describe_kind(a)} and {_describe_kind(b)}. Record both runs alike."
        )
    whole = join_shards(a, b), join_shards(b, a)
    return _Offline(*whole, selection or Selection(), narrow).run()


def _describe_kind(trace: Trace) -> str:
    kind = "digests" if trace.digested else "numbers"
    return f"{kind} of {count_things(trace.replicas, 'replica')}"


class _Offline:
    def __init__(
        self, a: Trace, b: Trace, selection: Selection, narrow: str | None
    ) -> None:
        self._renamed = pair_runs(a.variables, b.variables)
        back = {other: path for path, other in self._renamed.items()}
        self._a, self._b = a, _rename(b, back)
        self._selection, self._narrow = selection, narrow
        self._infos = {v.path: v for v in (*self._b.variables, *a.variables)}
        self._alike = a.replicas == b.replicas and _has_whole(a) == _has_whole(b)
        self._noise: dict[str, npt.NDArray[np.bool_]] = {}
        self._near: dict[tuple[str, int], bool] = {}
        self._floors: dict[tuple[int, Phase], float] = {}

    def run(self) -> RunDifference:
        steps = [{key.step for key in t.values} for t in (self._a, self._b)]
        shared = steps[0] & steps[1]
        keys = {
            key if self._alike else key.at(WHOLE)
            for trace in (self._a, self._b)
            for key in trace.values
            if key.step in shared
        }
        ordered = sorted(keys, key=lambda key: key.order)
        places: list[Place] = []
        for _, group in groupby(ordered, key=lambda key: key.step):
            made = [place for key in group for place in self._compare(key)]
            known = [p for p in made if not (p.lacks and may_lack(p.key))]
            places += mark_undone([p for p in known if self._selection.has(p.key)])
        return RunDifference(
            places=tuple(places),
            renamed=self._renamed,
            left_out=tuple(sorted((steps[0] ^ steps[1]) - {INITIAL})),
            drifting={
                name: key
                for name, trace in (("A", self._a), ("B", self._b))
                if (key := find_drift(trace)) is not None
            },
        )

    # --- which values are held against each other ---------------------------------

    def _compare(self, key: TraceKey) -> Iterator[Place]:
        if self._alike:
            left, right = self._a.get(key), self._b.get(key)
            yield self._measure(key, left, right)
            return
        if key.phase == "loss":
            is_one = all(trace.get(key) is not None for trace in (self._a, self._b))
            yield self._measure_together(key, "") if is_one else self._near_loss(key)
        elif key.phase == "local_gradient" or self._adds_up(key):
            how = "sum"
            if key.phase in STATE and not self._infos[key.variable].adds_up:
                how = "mean"
            yield self._measure_together(key, how)
        else:
            yield from self._compare_held(key)

    def _adds_up(self, key: TraceKey) -> bool:
        """Whether state is what the replicas hold together, as a sum or a mean."""
        info = self._infos.get(key.variable)
        is_own = info is not None and not (info.synchronised or info.is_of_first)
        return key.phase in STATE and is_own

    def _near_loss(self, key: TraceKey) -> Place:
        """Whether losses are shares of a sum or each a mean, the nearer one tells."""
        made = [self._measure_together(key, how) for how in ("sum", "mean")]
        return min(made, key=lambda place: place.likeness.error)

    def _measure_together(self, key: TraceKey, how: str) -> Place:
        left, right = (_put_together(t, key, how) for t in (self._a, self._b))
        return self._measure(key, left, right, how)

    def _compare_held(self, key: TraceKey) -> Iterator[Place]:
        one = _find_first(self._b, key)
        held = [key.at(r) for r in (WHOLE, *range(self._a.replicas))]
        held = [place for place in held if self._a.get(place) is not None]
        info = self._infos.get(key.variable)
        if info is not None and info.is_of_first:
            held = held[:1]  # nobody reads what the others hold
        for place in held or [key]:
            yield self._measure(place, self._a.get(place), one)

    # --- how -----------------------------------------------------------------------

    def _measure(
        self, key: TraceKey, left: Value | None, right: Value | None, how: str = ""
    ) -> Place:
        if left is None or right is None:
            lacks = "A" if left is None else "B"
            return Place(key=key, how=how, lacks=lacks)
        if self._a.digested and key.phase != "loss":
            return Place(key=key, likeness=_compare_digests(left, right))
        seen, due, gap = align_pair(left, right)
        observed, expected = seen.total, due.total
        dtype = name_value(right)
        half = find_half(self._narrow or dtype)
        is_state = key.phase in STATE
        likeness = measure_likeness(
            observed,
            expected,
            dtype,
            half=half,
            floor=0.0 if is_state else self._find_floor(key),
            before=self._find_before(key) if is_state and not how else None,
            noise=self._noise.get(self._find_owner(key)) if is_state else None,
        )
        if likeness.error and gap:
            share = gap / likeness.error
            likeness = replace(likeness, error=gap, relative=share * likeness.relative)
        place = key.variable, key.replica
        if is_state:
            self._near[place] = likeness.status != "different"
        elif key.phase in SUMMED:
            self._note_noise(key, left, right, likeness, half)
        return Place(key=key, how=how, likeness=likeness)

    def _find_owner(self, key: TraceKey) -> str:
        info = self._infos.get(key.variable)
        return key.variable if info is None else info.owner

    def _find_floor(self, key: TraceKey) -> float:
        """One unit in the last place of the largest value of the phase and step.

        A gradient that is zero but for rounding, as that of a bias in front of a batch
        normalisation, is the rest of a sum of others.
        """
        place = key.step, key.phase
        if place not in self._floors:
            floor = 0.0
            for _, value in self._b.select(step=key.step, phase=key.phase):
                size = measure_finite(densify(value))
                dtype = self._narrow or name_value(value)
                floor = max(floor, find_half(dtype) ** 2 * 2 * size)
            self._floors[place] = floor
        return self._floors[place]

    def _find_before(self, key: TraceKey) -> Before | None:
        """What the step that was recorded before this one left."""
        steps = {k.step for k in self._b.values if k.step < key.step}
        if not steps:
            return None
        before = replace(key, step=max(steps))
        left = self._a.get(before)
        if left is None:
            left = _find_first(self._a, before.at(WHOLE))
        right = self._b.get(before) if self._alike else None
        if right is None:
            right = _find_first(self._b, before.at(WHOLE))
        if left is None or right is None:
            return None
        arrays = densify(left), densify(right)
        now = self._infos[key.variable].shape
        if any(array.shape != now for array in arrays):
            return None
        was_near = self._near.get((key.variable, key.replica), True)
        return Before(observed=arrays[0], expected=arrays[1], was_near=was_near)

    def _note_noise(
        self, key: TraceKey, left: Value, right: Value, likeness: Likeness, half: float
    ) -> None:
        if likeness.status != "near":
            return
        arrays = densify(left), densify(right)
        noise = find_noise(*arrays, half)
        if likeness.is_noise:  # what agrees of it agrees by chance
            noise = np.ones(arrays[0].shape, bool)
        if noise is not None:
            known = self._noise.get(key.variable)
            self._noise[key.variable] = noise if known is None else known | noise


def _compare_digests(left: Value, right: Value) -> Likeness:
    if np.array_equal(densify(left), densify(right)):
        return Likeness(status="equal", ratio=1.0)
    unknown = float("nan")
    return Likeness(status="different", error=unknown, relative=unknown, ulps=unknown)


def find_drift(trace: Trace) -> TraceKey | None:
    """Where replicas first hold other values of state that is the same for all."""
    local = {v.path for v in trace.variables if not v.synchronised}
    first: dict[TraceKey, Value] = {}
    for key, value in trace.select():
        if key.phase not in STATE or key.variable in local or key.replica == WHOLE:
            continue
        if not are_same(first.setdefault(key.at(WHOLE), value), value):
            return key
    return None


def _rename(trace: Trace, paths: Mapping[str, str]) -> Trace:
    if not paths:
        return trace
    return replace(
        trace,
        variables=tuple(
            replace(v, path=paths.get(v.path, v.path), of=paths.get(v.of, v.of))
            for v in trace.variables
        ),
        values=Values(trace.values).rename(
            lambda key: replace(key, variable=paths.get(key.variable, key.variable))
        ),
    )


def _has_whole(trace: Trace) -> bool:
    return any(key.replica == WHOLE and key.phase != "loss" for key in trace.values)


def _find_first(trace: Trace, key: TraceKey) -> Value | None:
    """The value of one device, or of the first replica that has one."""
    found = (trace.get(key.at(r)) for r in (WHOLE, *range(trace.replicas)))
    return next((value for value in found if value is not None), None)


def _put_together(trace: Trace, key: TraceKey, how: str) -> Value | None:
    """The replicas' values as one, as the whole batch on one device gives it."""
    whole = trace.get(key.at(WHOLE))
    if whole is not None:
        return whole
    found = [trace.get(key.at(r)) for r in range(trace.replicas)]
    parts = [value for value in found if value is not None]
    if len(parts) < 2:
        return parts[0] if parts else None
    count = 1 if how == "sum" else len(parts)
    if all(isinstance(part, SparseRows) for part in parts):
        sparse = [part for part in parts if isinstance(part, SparseRows)]
        values = np.concatenate([part.values for part in sparse])
        return SparseRows(
            indices=np.concatenate([part.indices for part in sparse]),
            values=values / count if count > 1 else values,
            shape=sparse[0].shape,
        )
    total = np.sum([densify(part) for part in parts], axis=0) / count
    kept = next(part for part in parts if not isinstance(part, SparseRows))
    return np.asarray(total, kept.dtype if is_floating(kept.dtype) else np.float64)
