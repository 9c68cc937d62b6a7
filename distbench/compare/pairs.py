"""Which observed value is held against which expected one, and how tightly."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from distbench.compare.addends import Widened, collect_addends
from distbench.compare.bounds import bound_sum, find_roundoff
from distbench.compare.factor import Factors, is_power_of_two
from distbench.compare.measure import BITWISE, Margin
from distbench.compare.noise import STATE, Noise
from distbench.compare.ratio import fit_ratio
from distbench.compare.sums import bound_reduction
from distbench.compare.values import (
    Aligned,
    Array,
    align_value,
    align_values,
    are_equal,
    densify,
    join_rows,
    measure_norm,
    name_dtype,
)
from distbench.evidence import Evidence
from distbench.trace import (
    INITIAL,
    WHOLE,
    Phase,
    SparseRows,
    Trace,
    TraceKey,
    Value,
    VariableInfo,
)
from distbench.trace.shelf import LARGE_BYTES

Relation = Literal["reference", "follows", "replicas", "led", "total", "result"]

TOLD: tuple[Relation, ...] = ("total", "result")
"""Relations of what is told of a step, and trains nothing."""

Members = tuple[tuple[TraceKey, Value], ...]
"""What the replicas hold of one value, in their order."""

SHARD = "one device, the same shard"
GLOBAL = "one device, the global batch"
START = "one device, before the first step"
SAVED = "what was saved"
SUM = "sum of the observed local gradients"
DIRECTION = "direction of the sum of the observed local gradients"
UPDATES: dict[Phase, str] = {
    "reduced_gradient": "one-device update with the observed reduced gradient",
    "applied_gradient": "one-device update with the observed applied gradient",
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pair:
    """An observed value and what it ought to be.

    Attributes:
        key: Where it was observed; replica `WHOLE` for a sum over the replicas.
        relation: Against the reference, against what follows from the observed phase
            before it, against another replica, what all replicas' examples make of it,
            what all replicas add together, or what a metric makes of that.
        against: Name of what it is compared with.
        observed: Observed value; of sparse gradients only the rows that occur.
        expected: Expected value, of the same shape.
        margin: How far apart the two may lie.
        dtype: Dtype in which the observed value was computed.
        base: State before the step; 0 for gradients and losses.
        terms: The addends of a sum, one for each replica.
        rows: Row numbers of a sparse value.
        repeats: Whether both come from the same ops on the same numbers.
        tested: What came of testing it, once it was; the pairs of several replicas that
            hold the very same numbers share this list.
    """

    key: TraceKey
    relation: Relation
    against: str
    observed: Array
    expected: Array
    margin: Margin
    dtype: str
    base: Array | float = 0.0
    terms: Sequence[Array] = ()
    rows: Array | None = None
    repeats: bool = False
    tested: list[Any] = field(default_factory=list, repr=False)


class Pairs:
    """Lists the pairs of an evidence in causal order of their steps."""

    def __init__(self, evidence: Evidence, noise: Noise) -> None:
        self.evidence = evidence
        self.noise = noise
        self.infos: dict[str, VariableInfo] = {
            v.path: v for v in evidence.observed.variables
        }
        self._dtypes = evidence.reference.dtypes
        self._exact = evidence.tier == "exact"
        self._astray: dict[int, bool] = {}
        self._factors = Factors(evidence.reference)
        self._known: dict[tuple[Relation, str], tuple[Value, Value, Pair]] = {}
        self._trained = {
            key.variable
            for key in evidence.reference.values
            if key.phase == "local_gradient"
        }
        self._fed = {
            (key.step, key.variable)
            for key in evidence.observed.values
            if key.phase in ("reduced_gradient", "applied_gradient")
        }

    def list_all(self) -> Iterator[Pair]:
        """Every pair, each observed value once for each relation it stands in."""
        select = self.evidence.observed.select()
        for whole, group in groupby(select, key=lambda item: item[0].at(WHOLE)):
            # No name for them here: those of a large model are let go one by one.
            yield from self._pair_members(whole, tuple(group))
            self._known.clear()

    def _pair_members(self, whole: TraceKey, members: Members) -> Iterator[Pair]:
        """The pairs of what all replicas have at one place."""
        if whole.phase == "loss" and whole.variable:
            return  # what a metric shows
        if whole.phase in ("loss", "local_gradient"):
            if self.evidence.shards_known and not self.evidence.summed:
                yield from self._pair_shards(members)
            else:
                yield from self._pair_sum(whole)
        elif whole.phase == "reduced_gradient":
            yield from self._pair_reduced(whole, members)
        elif whole.phase == "applied_gradient":
            for key, value in members:
                yield from self._pair_replay(key, value, "reduced_gradient")
                yield from self._pair_whole(key, value)
        else:
            yield from self._pair_state(whole, members)

    def _pair_shards(self, members: Members) -> Iterator[Pair]:
        for key, value in members:
            expected = self._find_reference(key)
            if expected is not None:
                yield self._make(key, "reference", SHARD, value, expected, repeats=True)

    def _find_reference(self, key: TraceKey) -> Value | None:
        if key.phase not in self.evidence.known and not self._is_settled(key):
            return None
        return self.evidence.reference.get(key)

    def _is_settled(self, key: TraceKey) -> bool:
        """Whether it is about what trains, in a step that one device leaves out."""
        is_trained = key.phase != "variable" or key.variable in self._trained
        return key.step in self.evidence.settled and key.phase != "slot" and is_trained

    def _pair_sum(self, key: TraceKey) -> Iterator[Pair]:
        """The replicas' values added up, against the global batch's."""
        evidence = self.evidence
        whole = self._find_reference(key)
        parts = self.find_parts(evidence.observed, key)
        if whole is None or parts is None:
            return
        rows = join_rows((whole, *parts))
        expected = align_value(whole, rows)
        addends = collect_addends(parts, rows, 1.0)
        total, terms = addends.add_up(), Widened(addends.totals)
        if key.phase == "loss":
            mean = total / len(terms)
            kind = evidence.loss_reduction
            if kind == "mean" or (
                kind is None
                and abs(float(mean - expected.total))
                < abs(float(total - expected.total))
            ):
                total = mean
                terms = Widened([term / len(terms) for term in terms])
        yield Pair(
            key=key,
            relation="reference",
            against=GLOBAL,
            observed=np.asarray(total),
            expected=expected.total,
            margin=self.noise.find_margin(key, expected.total),
            dtype=self._name_dtype(key, whole),
            terms=terms,
            rows=_rows(expected),
            repeats=evidence.summed,
        )

    def find_parts(self, trace: Trace, key: TraceKey) -> tuple[Value, ...] | None:
        """The values of all replicas; one that has no gradient here counts as 0.

        None if no replica has a value, or if one shows no gradient at all at this
        step: then it was not seen, which does not mean that there was none.
        """
        found = [trace.get(key.at(r)) for r in range(trace.replicas)]
        present = [value for value in found if value is not None]
        if not present:
            return None
        if len(present) == len(found):
            return tuple(present)
        parts: list[Value] = []
        for replica, value in enumerate(found):
            if value is None and not any(
                trace.get(replace(key, replica=replica, variable=path)) is not None
                for path in self.infos
            ):
                return None
            zero = np.zeros(densify(present[0]).shape)
            parts.append(zero if value is None else value)
        return tuple(parts)

    def _pair_reduced(self, whole: TraceKey, members: Members) -> Iterator[Pair]:
        source = replace(whole, phase="local_gradient")
        parts = self.find_parts(self.evidence.observed, source)
        factor = None if parts is None else self._factors.find(whole)
        known: tuple[Value, Pair] | None = None
        for key, value in members:
            if parts is not None and factor is not None:
                known = value, self._make_sum(key, value, parts, factor, known)
                yield known[1]
            elif parts is not None and self._has_direction(whole):
                yield from self._pair_direction(key, value, parts)
            yield from self._pair_whole(key, value)

    def _make_sum(
        self,
        key: TraceKey,
        value: Value,
        parts: tuple[Value, ...],
        factor: float,
        known: tuple[Value, Pair] | None,
    ) -> Pair:
        """A reduced gradient against the sum of what went in.

        That is the same for all replicas which hold the same rows, so that it is taken
        from what is `known` of another replica: its value, and the pair.
        """
        if known is not None and _are_copies((value,), known[:1]):
            return replace(known[1], key=key)
        rows = join_rows((value, *parts))
        seen = align_value(value, rows)
        dtype = self._name_dtype(key, value)
        if (
            known is not None
            and known[1].dtype == dtype
            and _have_equal_rows(rows, known[1].rows)
        ):
            return replace(known[1], key=key, observed=seen.total, tested=[])
        addends = collect_addends(parts, rows, factor)
        expected = addends.add_up()
        return Pair(
            key=key,
            relation="follows",
            against=SUM,
            observed=seen.total,
            expected=expected,
            margin=BITWISE
            if self._exact
            else bound_reduction(
                addends,
                expected,
                find_roundoff(dtype),
                factor_rounds=not is_power_of_two(factor),
            ),
            dtype=dtype,
            terms=Widened(addends.totals),
            rows=_rows(seen),
        )

    def _has_direction(self, key: TraceKey) -> bool:
        """Whether all that is known of a sum is that it is scaled afterwards."""
        is_known = key.phase in self.evidence.known
        return not is_known and self._factors.scales(key)

    def _pair_direction(
        self, key: TraceKey, value: Value, parts: tuple[Value, ...]
    ) -> Iterator[Pair]:
        """A reduced gradient against the sum of what went in, times what fits best."""
        rows = join_rows((value, *parts))
        seen = align_value(value, rows)
        total = collect_addends(parts, rows, 1.0).add_up()
        fit = fit_ratio(seen.total, total)
        if fit is None or total.size == 1:
            return  # one number is a multiple of any other
        factor = fit.ratio
        if factor <= 0:
            factor = measure_norm(seen.total) / measure_norm(total)
        addends = collect_addends(parts, rows, factor)
        expected = addends.add_up()
        dtype = self._name_dtype(key, value)
        margin = bound_reduction(
            addends, expected, find_roundoff(dtype), factor_rounds=True
        )
        bound = np.broadcast_to(margin.bound, expected.shape)
        # The errors of all elements move the number that fits them.
        square = float(np.sum(expected**2))
        moved = float(np.sum(np.abs(expected) * bound)) / square if square else 0.0
        yield Pair(
            key=key,
            relation="follows",
            against=DIRECTION,
            observed=seen.total,
            expected=expected,
            margin=Margin(bound=bound + moved * np.abs(expected)),
            dtype=dtype,
            terms=Widened(addends.totals),
            rows=_rows(seen),
        )

    def _pair_whole(self, key: TraceKey, value: Value) -> Iterator[Pair]:
        expected = self._find_reference(key.at(WHOLE))
        slack = self.evidence.slack.get(key.at(WHOLE), 0.0)
        if expected is None or slack == math.inf:
            return
        margin = None
        if slack:
            due = densify(expected)
            margin = self.noise.find_margin(key, due).widen(slack, measure_norm(due))
        yield self._make(key, "reference", GLOBAL, value, expected, margin)

    def _pair_replay(
        self, key: TraceKey, value: Value, source: Phase
    ) -> Iterator[Pair]:
        if self.evidence.tier == "free" and key.step > 0:
            return  # the replay started from another state than the cluster
        replay = self.evidence.replays.get(source)
        expected = None if replay is None else replay.get(key)
        if expected is None:
            return
        margin = self._bound_rows(key, value, expected)
        if margin == BITWISE:
            margin = self.noise.find_update_margin(key, expected)
        if margin == BITWISE and key.phase in STATE and self._is_led_astray(key.step):
            margin = self.noise.find_margin(key, densify(expected))
        yield self._make(key, "follows", UPDATES[source], value, expected, margin)

    def _is_led_astray(self, step: int) -> bool:
        """Whether a slot that no replay is fed with has other bits than on one device.

        What the rule makes of it, a step divided by a norm of the replicas' own say,
        follows from the gradients only as far as the slot does.
        """
        if step not in self._astray:
            found = self.evidence.observed.select(step=step, phase="slot")
            self._astray[step] = any(
                info.synchronised
                and not self._is_fed(key)
                and not _are_same(value, expected)
                for key, value in found
                if (info := self.infos.get(key.variable)) is not None
                and (expected := self._find_reference(key.at(WHOLE))) is not None
            )
        return self._astray[step]

    def _bound_rows(self, key: TraceKey, value: Value, expected: Value) -> Margin:
        """Bitwise, but for rows that one side has added up and the other has not."""
        if self._exact or _have_same_rows(value, expected):
            return BITWISE
        left, right = align_values((value, expected))
        most = max(
            1 if a.counts is None else int(a.counts.max(initial=1))
            for a in (left, right)
        )
        magnitude = np.maximum(left.magnitude, right.magnitude)
        u = find_roundoff(self._name_dtype(key, value))
        return Margin(bound=bound_sum(magnitude, most - 1, u))

    def _pair_state(self, whole: TraceKey, members: Members) -> Iterator[Pair]:
        info = self.infos.get(whole.variable)
        if info is not None and not info.synchronised:
            return
        fed = self.evidence.replays.get("applied_gradient")
        start = self.evidence.reference.get(whole)
        first, other = members[0]
        for key, value in members:
            if key.step != INITIAL:
                source: Phase = "reduced_gradient"
                if fed is not None and fed.get(key) is not None:
                    source = "applied_gradient"
                if self._is_fed(key):
                    yield from self._pair_replay(key, value, source)
                yield from self._pair_whole(key, value)
            elif start is not None and key.variable not in self.evidence.drawn_anew:
                name = SAVED if self.evidence.restored else START
                yield self._make(key, "reference", name, value, start, BITWISE)
            if key != first:
                name = f"replica {first.replica}"
                yield self._make(key, "replicas", name, value, other, BITWISE)

    def _is_fed(self, key: TraceKey) -> bool:
        """Whether state follows from the gradients that a replay is fed with.

        A variable without a gradient, such as a moving average of the data, does not,
        nor does what is led by the data as well, or by a number of Python's. Nor does
        what an optimizer keeps of the gradients that it was handed, before they are
        reduced: whatever a replay is fed with behind that, it stays the same.
        """
        if key.variable in self.evidence.undetermined:
            return False
        if key.phase == "variable":
            return (key.step, key.variable) in self._fed
        if key.phase != "slot":
            return True
        whole = self.evidence.reference.get(replace(key, replica=WHOLE))
        before = self.evidence.get_before(key.step, key.phase, key.variable)
        if whole is None or (before is not None and _are_same(whole, before)):
            return True
        replays = self.evidence.replays
        fed = [replays.get("reduced_gradient"), replays.get("local_gradient")]
        values = [
            v
            for trace in fed
            if trace is not None and (v := trace.get(key)) is not None
        ]
        if len(values) < 2 or self.evidence.observed.replicas == 1:
            return True
        return not all(_are_same(value, whole) for value in values)

    def _make(
        self,
        key: TraceKey,
        relation: Relation,
        against: str,
        value: Value,
        expected: Value,
        margin: Margin | None = None,
        *,
        repeats: bool = False,
    ) -> Pair:
        known = self._known.get((relation, against))
        if known is not None and _are_copies((value, expected), (known[0], known[1])):
            # What is true of one copy is true of all.
            return replace(known[2], key=key)
        pair = self._align(key, relation, against, value, expected, margin, repeats)
        self._known[relation, against] = value, expected, pair
        return pair

    def _align(
        self,
        key: TraceKey,
        relation: Relation,
        against: str,
        value: Value,
        expected: Value,
        margin: Margin | None,
        repeats: bool,
    ) -> Pair:
        seen, wanted = align_values((value, expected))
        base: Array | float = 0.0
        if key.phase in STATE and key.step != INITIAL:
            before = self.evidence.get_before(key.step, key.phase, key.variable)
            state = None if before is None else densify(before)
            if state is not None and state.shape == seen.total.shape:
                base = state
        if margin is None and repeats:
            margin = self.noise.find_repeated_margin(key, wanted.total)
        elif margin is None:
            margin = self.noise.find_margin(key, wanted.total)
        return Pair(
            key=key,
            relation=relation,
            against=against,
            observed=seen.total,
            expected=wanted.total,
            margin=margin,
            dtype=self._name_dtype(key, value),
            base=base,
            rows=_rows(seen),
            repeats=repeats,
        )

    def _name_dtype(self, key: TraceKey, value: Value) -> str:
        return name_dtype(value, self._dtypes.get(key.variable))


def _rows(aligned: Aligned) -> Array | None:
    return None if aligned.rows is None else aligned.rows.astype(np.float64)


def _are_copies(left: Sequence[Value], right: Sequence[Value]) -> bool:
    """Whether values have the same bits; large ones have if they are one object."""
    return all(map(_is_copy, left, right))


def _is_copy(left: Value, right: Value) -> bool:
    if left is right:
        return True
    if isinstance(left, SparseRows) or isinstance(right, SparseRows):
        return False
    return (
        left.nbytes == right.nbytes < LARGE_BYTES
        and (left.dtype, left.shape) == (right.dtype, right.shape)
        and left.tobytes() == right.tobytes()
    )


def _are_same(left: Value, right: Value) -> bool:
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return are_equal(left, right)
    return are_equal(densify(left), densify(right))


def _have_equal_rows(rows: npt.NDArray[np.int64] | None, others: Array | None) -> bool:
    if rows is None or others is None:
        return rows is None and others is None
    return bool(np.array_equal(rows, others))


def _have_same_rows(left: Value, right: Value) -> bool:
    if isinstance(left, SparseRows) and isinstance(right, SparseRows):
        return bool(np.array_equal(np.sort(left.indices), np.sort(right.indices)))
    return not isinstance(left, SparseRows) and not isinstance(right, SparseRows)
