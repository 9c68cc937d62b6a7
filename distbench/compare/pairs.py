"""Which observed value is held against which expected one, and how tightly."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby

import numpy as np

from distbench.compare.addends import Widened, collect_addends
from distbench.compare.bounds import bound_sum, find_roundoff
from distbench.compare.copies import are_copies, are_same, have_same_rows
from distbench.compare.factor import Factors
from distbench.compare.measure import BITWISE, Margin
from distbench.compare.noise import Noise
from distbench.compare.pair import (
    ADDED,
    GLOBAL,
    SAVED,
    SHARD,
    START,
    UPDATES,
    Pair,
    Relation,
)
from distbench.compare.reduced import (
    count_mean_roundings,
    pair_direction,
    pair_sum,
)
from distbench.compare.values import (
    Array,
    align_value,
    align_values,
    densify,
    join_rows,
    measure_norm,
    name_dtype,
)
from distbench.evidence import Evidence
from distbench.trace import (
    COMPUTED,
    INITIAL,
    STATE,
    SUMMED,
    WHOLE,
    Phase,
    Trace,
    TraceKey,
    Value,
    VariableInfo,
)

Members = tuple[tuple[TraceKey, Value], ...]
"""What the replicas hold of one value, in their order."""


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
            if key.phase in SUMMED
        }

    def list_all(self, *, phase: Phase | None = None) -> Iterator[Pair]:
        """Every pair, each observed value once for each relation it stands in.

        Args:
            phase: Of which alone; None for all.
        """
        select = self.evidence.observed.select(phase=phase)
        for whole, group in groupby(select, key=lambda item: item[0].at(WHOLE)):
            # No name for them here: those of a large model are let go one by one.
            yield from self._pair_members(whole, tuple(group))
            self._known.clear()

    def _pair_members(self, whole: TraceKey, members: Members) -> Iterator[Pair]:
        """The pairs of what all replicas have at one place."""
        if whole.phase == "loss" and whole.variable:
            return  # what a metric shows
        if whole.phase in COMPUTED:
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
            rows=expected.places,
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
            dtype = self._name_dtype(key, value)
            if parts is not None and factor is not None:
                pair = pair_sum(
                    key, value, parts, factor, dtype, known, exact=self._exact
                )
                known = value, pair
                yield pair
            elif parts is not None and self._has_direction(whole):
                yield from pair_direction(key, value, parts, dtype)
            yield from self._pair_whole(key, value)

    def _has_direction(self, key: TraceKey) -> bool:
        """Whether all that is known of a sum is that it is scaled afterwards."""
        is_known = key.phase in self.evidence.known
        return not is_known and self._factors.scales(key)

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
        if margin == BITWISE and self._may_be_averaged(key):
            margin = self._bound_mean(key, value, expected)
        if margin == BITWISE and key.phase in STATE and self._is_led_astray(key.step):
            margin = self.noise.find_margin(key, densify(expected))
        yield self._make(key, "follows", UPDATES[source], value, expected, margin)

    def _may_be_averaged(self, key: TraceKey) -> bool:
        """Whether replicas may average it once more: gradients, and what they assign.

        What is trained is updated, and not assigned.
        """
        if key.phase == "applied_gradient":
            return True
        info = self.infos.get(key.variable) if key.phase in STATE else None
        return info is not None and info.averages and not info.trainable

    def _bound_mean(self, key: TraceKey, value: Value, expected: Value) -> Margin:
        """Bitwise, but for what averaging equal sums once more leaves of them.

        Of dyadic numbers that is exact.
        """
        roundings = count_mean_roundings(self.evidence.observed.replicas)
        if self._exact or not roundings:
            return BITWISE
        u = find_roundoff(self._name_dtype(key, value))
        due = align_values((value, expected))[1]
        return Margin(bound=bound_sum(np.abs(due.total), roundings, u))

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
                and not are_same(value, expected)
                for key, value in found
                if (info := self.infos.get(key.variable)) is not None
                and (expected := self._find_reference(key.at(WHOLE))) is not None
            )
        return self._astray[step]

    def _bound_rows(self, key: TraceKey, value: Value, expected: Value) -> Margin:
        """Bitwise, but for rows that one side has added up and the other has not."""
        if self._exact or have_same_rows(value, expected):
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
                yield from self._pair_due(key, value)
            elif start is not None and key.variable not in self.evidence.drawn_anew:
                name = SAVED if self.evidence.restored else START
                yield self._make(key, "reference", name, value, start, BITWISE)
            if key != first:
                name = f"replica {first.replica}"
                yield self._make(key, "replicas", name, value, other, BITWISE)

    def _pair_due(self, key: TraceKey, value: Value) -> Iterator[Pair]:
        """What follows from a sum that nobody saw, where nothing else says it.

        In which order the replicas' gradients are added up is not known, so what
        follows may be off by rounding; a value with the same bits is proved by these.
        """
        due = self.evidence.due
        path = key.variable
        if (
            due is None
            or key.phase != "variable"
            or path not in self._trained.union(self.evidence.kept)
            or path in self.evidence.undetermined
            or (key.step, path) in self._fed
            or self._find_reference(key.at(WHOLE)) is not None
        ):
            return
        expected = due.get(key.at(0))
        if expected is not None:
            yield self._make(key, "added", ADDED, value, expected, repeats=True)

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
        if whole is None or (before is not None and are_same(whole, before)):
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
        return not all(are_same(value, whole) for value in values)

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
        if known is not None and are_copies((value, expected), (known[0], known[1])):
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
            rows=seen.places,
            repeats=repeats,
        )

    def _name_dtype(self, key: TraceKey, value: Value) -> str:
        return name_dtype(value, self._dtypes.get(key.variable))
