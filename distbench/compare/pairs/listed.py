"""Which observed value is held against which expected one, in which relation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from typing import cast

import numpy as np

from distbench.compare.arrays.addends import Widened, collect_addends
from distbench.compare.arrays.aligned import align_value, join_rows
from distbench.compare.arrays.measure import BITWISE, measure_error
from distbench.compare.arrays.noise import Noise
from distbench.compare.arrays.pair import (
    ADDED,
    CHANGED,
    GLOBAL,
    SAVED,
    SHARD,
    START,
    UPDATES,
    Pair,
    Relation,
)
from distbench.compare.nature.averaged_losses import is_nearer_mean
from distbench.compare.nature.factor import Factor, Factors
from distbench.compare.pairs.expected import Expected
from distbench.compare.pairs.overflow import leave_infinite, let_leave_out
from distbench.compare.pairs.pair_maker import PairMaker
from distbench.compare.pairs.reduced import is_clipped, pair_direction, pair_sum
from distbench.compare.pairs.replay_margins import ReplayMargins
from distbench.compare.state.leading import is_trained
from distbench.evidence import Evidence
from distbench.trace import COMPUTED, INITIAL, WHOLE, Phase, TraceKey, Value
from distbench.trace.numbers import densify, measure_norm, name_value

Members = tuple[tuple[TraceKey, Value], ...]
"""What the replicas hold of one value, in their order."""


class Pairs:
    """Lists the pairs of an evidence in causal order of their steps."""

    def __init__(self, evidence: Evidence, noise: Noise) -> None:
        self._evidence = evidence
        self._noise = noise
        self._infos = evidence.observed.by_path
        self._exact = evidence.tier == "exact"
        noted = evidence.observed.notes.get("roundings", {})
        roundings = cast(Mapping[str, int], noted)
        self._factors = Factors(evidence.reference, roundings)
        self._expected = Expected(evidence)
        self._margins = ReplayMargins(evidence, noise, self._expected, self._infos)
        self._maker = PairMaker(evidence, noise)

    def list_all(self, *, phase: Phase | None = None) -> Iterator[Pair]:
        """Every pair, each observed value once for each relation it stands in.

        Args:
            phase: Pairs of this phase alone; None for all.
        """
        select = self._evidence.observed.select(phase=phase)
        for whole, group in groupby(select, key=lambda item: item[0].at(WHOLE)):
            # No name for them here: those of a large model are let go one by one.
            yield from self._pair_members(whole, tuple(group))
            self._maker.forget()

    def _pair_members(self, whole: TraceKey, members: Members) -> Iterator[Pair]:
        """The pairs of what all replicas have at one place."""
        if whole.phase == "loss" and whole.variable:
            return  # what a metric shows
        if whole.phase in COMPUTED:
            measure = self._evidence.measure
            if measure.shards_known and not measure.summed:
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
            expected = self._expected.find_reference(key)
            if expected is not None:
                pair = self._maker.make(
                    key, "reference", SHARD, value, expected, repeats=True
                )
                yield self._leave_infinite(pair)

    def _pair_sum(self, key: TraceKey) -> Iterator[Pair]:
        """The replicas' values added up, against the global batch's."""
        evidence = self._evidence
        whole = self._expected.find_reference(key)
        parts = self._find_parts(key)
        if whole is None or parts is None:
            return
        rows = join_rows((whole, *parts))
        expected = align_value(whole, rows)
        addends = collect_addends(parts, rows, 1.0)
        total, terms = addends.add_up(), Widened(addends.totals)
        if key.phase == "loss":
            kind = evidence.subject.loss_reduction
            if kind == "mean" or (
                kind is None
                and is_nearer_mean(float(total), float(expected.total), len(terms))
            ):
                total = total / len(terms)
                terms = Widened([term / len(terms) for term in terms])
        pair = Pair(
            key=key,
            relation="reference",
            against=GLOBAL,
            observed=np.asarray(total),
            expected=expected.total,
            margin=self._noise.find_margin(key, expected.total),
            dtype=name_value(whole),
            terms=terms,
            rows=expected.places,
            repeats=evidence.measure.summed,
        )
        yield self._leave_infinite(pair)

    def _find_parts(self, key: TraceKey) -> tuple[Value, ...] | None:
        """The values of all replicas; one that has no gradient here counts as 0.

        None if no replica has a value, or if one shows no gradient at all at this
        step: then it was not seen, which does not mean that there was none.
        """
        trace = self._evidence.observed
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
                for path in self._infos
            ):
                return None
            zero = np.zeros(densify(present[0]).shape)
            parts.append(zero if value is None else value)
        return tuple(parts)

    def _pair_reduced(self, whole: TraceKey, members: Members) -> Iterator[Pair]:
        source = replace(whole, phase="local_gradient")
        parts = self._find_parts(source)
        if whole.step in self._evidence.measure.parted:
            yield from self._pair_parted(whole, members, parts)
            return
        factor = None if parts is None else self._factors.find(whole)
        known: tuple[Value, Pair] | None = None
        for key, value in members:
            dtype = name_value(value)
            if parts is not None and factor is not None:
                pair = pair_sum(
                    key, value, parts, factor, dtype, known, exact=self._exact
                )
                known = value, pair
                is_open = whole.phase not in self._evidence.measure.known
                changed = self._pair_changed(pair, value)
                if changed is not None:
                    yield changed
                elif is_open and self._factors.clips and is_clipped(pair):
                    sign = math.copysign(1.0, factor.value)
                    yield from pair_direction(key, value, parts, dtype, sign)
                else:
                    yield pair
            elif parts is not None and self._has_direction(whole):
                sign = self._factors.find_sign(whole)
                yield from pair_direction(key, value, parts, dtype, sign)
            yield from self._pair_whole(key, value)

    def _pair_parted(
        self, whole: TraceKey, members: Members, parts: tuple[Value, ...] | None
    ) -> Iterator[Pair]:
        """Sums in a step that one side leaves out, as far as replicas tell of them."""
        # A free run that goes its own way has a loss scale of its own.
        if parts is None or self._expected.is_apart(whole.step):
            return
        overflows = not all(self._evidence.observed.find_finite(whole.step).values())
        factor = self._factors.find(whole, is_left=not overflows)
        for key, value in members:
            dtype, made = name_value(value), factor or Factor(1.0)
            pair = pair_sum(key, value, parts, made, dtype, None, exact=self._exact)
            # Whether one device clips it as well, nobody knows.
            is_known = factor is not None and not is_clipped(pair)
            yield let_leave_out(pair, overflows=overflows, is_known=is_known)

    def _pair_changed(self, pair: Pair, value: Value) -> Pair | None:
        """Against what one device makes of a sum, where it is not handed on as it is.

        A clip may take larger sums alone, such as those of gradients that are wrong.
        """
        changed = self._evidence.fed.changed
        due = None if changed is None else changed.get(pair.key.at(0))
        if due is None:
            return None
        if not measure_error(pair.observed, pair.expected, pair.margin).wrong:
            return None  # it is that sum
        margin = self._noise.find_margin(pair.key, densify(due))
        return self._maker.make(pair.key, "follows", CHANGED, value, due, margin)

    def _has_direction(self, key: TraceKey) -> bool:
        """Whether all that is known of a sum is that it is scaled afterwards."""
        is_known = key.phase in self._evidence.measure.known
        return not is_known and self._factors.scales(key)

    def _pair_whole(self, key: TraceKey, value: Value) -> Iterator[Pair]:
        expected = self._expected.find_reference(key.at(WHOLE))
        if expected is None:
            expected = self._expected.find_finite(key)
        slack = self._evidence.measure.slack.get(key.at(WHOLE), 0.0)
        if expected is None or slack == math.inf:
            return
        margin = None
        if slack:
            due = densify(expected)
            margin = self._noise.find_margin(key, due).widen(slack, measure_norm(due))
        pair = self._maker.make(key, "reference", GLOBAL, value, expected, margin)
        yield self._leave_infinite(pair)

    def _leave_infinite(self, pair: Pair) -> Pair:
        evidence = self._evidence
        overflows = pair.key.step in evidence.measure.overflowing
        return leave_infinite(pair, evidence.reference, overflows=overflows)

    def _pair_replay(
        self, key: TraceKey, value: Value, source: Phase
    ) -> Iterator[Pair]:
        expected = self._expected.find_replay(key, source)
        if expected is None:
            return
        dtype = name_value(value)
        margin = self._margins.find(key, value, expected, dtype)
        yield self._maker.make(key, "follows", UPDATES[source], value, expected, margin)

    def _pair_known(self, key: TraceKey, value: Value, source: Phase) -> Iterator[Pair]:
        """Against all that tells what a value of the state has to be."""
        if self._expected.is_fed(key):
            yield from self._pair_replay(key, value, source)
        yield from self._pair_whole(key, value)
        yield from self._pair_due(key, value)

    def _pair_rounded(self, key: TraceKey, value: Value, source: Phase) -> Pair | None:
        """What one device makes of it, as far as a narrow dtype leaves that a measure.

        Of state that does not follow from the gradients that were seen: something else
        of the batch leads it, as a rate that follows the loss, or the step hides them.
        In the first case these are put in all the same. What gradients have no part in
        is told by the shards.
        """
        evidence = self._evidence
        is_untold = not evidence.measure.lost or key.step in evidence.measure.parted
        if is_untold or (
            key.phase == "variable" and not is_trained(evidence, key.variable)
        ):
            return None
        replay, due = evidence.fed.replays.get(source), evidence.fed.due
        known: list[tuple[Relation, str, Value | None]] = [
            ("follows", UPDATES[source], None if replay is None else replay.get(key)),
            ("added", ADDED, None if due is None else due.get(key.at(0))),
            ("reference", GLOBAL, evidence.reference.get(key.at(WHOLE))),
        ]
        for relation, against, expected in known:
            if expected is None:
                continue
            margin = self._noise.find_rounded_margin(
                key, expected, is_fed=relation != "reference"
            )
            if margin is not None:
                return self._maker.make(key, relation, against, value, expected, margin)
        return None

    def _pair_due(self, key: TraceKey, value: Value) -> Iterator[Pair]:
        """What follows from a sum that nobody saw.

        In which order the replicas' gradients are added up is not known, so what
        follows may be off by rounding; a value with the same bits is proved by these.
        """
        expected = self._expected.find_due(key)
        if expected is not None:
            yield self._maker.make(key, "added", ADDED, value, expected, repeats=True)

    def _pair_state(self, whole: TraceKey, members: Members) -> Iterator[Pair]:
        info = self._infos.get(whole.variable)
        if info is not None and not info.synchronised:
            return
        fed = self._evidence.fed.replays.get("applied_gradient")
        start = self._evidence.reference.get(whole)
        subject = self._evidence.subject
        first, other = members[0]
        for key, value in members:
            if key.step != INITIAL:
                source: Phase = "reduced_gradient"
                if fed is not None and fed.get(key) is not None:
                    source = "applied_gradient"
                is_known = False
                for pair in self._pair_known(key, value, source):
                    is_known = True
                    yield pair
                if not is_known and (rounded := self._pair_rounded(key, value, source)):
                    yield rounded
            elif start is not None and key.variable not in subject.drawn_anew:
                name = SAVED if subject.restored else START
                margin = BITWISE
                if not subject.restored and not self._exact:
                    margin = self._noise.find_start_margin(key, start)
                yield self._maker.make(key, "reference", name, value, start, margin)
            if key != first:
                name = f"replica {first.replica}"
                yield self._maker.make(key, "replicas", name, value, other, BITWISE)
