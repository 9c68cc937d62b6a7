"""Causes in the optimizer's slots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from distbench.compare.arrays.pair import Pair
from distbench.compare.state.leading import find_led_numbers, is_number
from distbench.diagnose.clues.cases import find_base
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.fit import (
    fit_weights,
    make_error,
    predict_cases,
    predict_rows,
)
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.diagnose.clues.turns import name_turn
from distbench.diagnose.hypotheses.overflow import (
    find_overflowing,
    is_applied_to_some,
)
from distbench.diagnose.hypotheses.reduction import list_subsets
from distbench.diagnose.hypotheses.slot_facts import (
    SlotRule,
    find_locals,
    fit_due_rule,
    group_by_kind,
    is_sum_unseen,
    lead_a_late_step,
    pair_gradients,
)
from distbench.diagnose.hypotheses.slot_feeds import Feed, list_feeds, make_part
from distbench.diagnose.names import name_replicas
from distbench.trace import UPDATED, Trace
from distbench.trace.numbers import Array, are_equal, measure_norm

_ALONE = "slot-from-local-gradient"
_NEAR = 0.01
"""How far a fitted share may lie from that of the rule, as a part of it."""


def explain_by_local_gradient(context: Context) -> Iterator[Hypothesis]:
    """The update was fed with the replica's own gradient in place of the reduced one.

    Where the one-device update was replayed with the local gradients, its result is the
    prediction. Else the slot's error must be in proportion to f(g_r) - f(Σ g), with f
    the identity or the square (first and second moments).
    """
    if context.phase not in UPDATED or context.replicas == 1:
        return
    code = "missing-reduction" if context.phase == "variable" else _ALONE
    words = "it follows from the replica's own gradient, not from the reduced one"
    replay = context.evidence.fed.replays.get("local_gradient")
    if replay is not None and (predicted := _list_led(context, replay)):
        yield Hypothesis(code=code, predicted=predicted, detail=words)
    if context.phase == "variable":
        return
    kinds = _list_kinds(context)
    if is_sum_unseen(context) and not _has_right_slot(context):
        yield from _explain_unseen(context, kinds)
        return
    for feed in list_feeds(context.replicas):
        yield from _fit_feed(context, kinds, feed, code)


def _list_led(context: Context, replay: Trace) -> dict[int, Array]:
    """What a replay with other gradients leaves; empty where these change none of it.

    A number that no gradient leads, as a product of momenta, is another one in a replay
    for another reason, such as that its step was traced anew.
    """
    predicted = context.read_state(replay)
    once = context.evidence.fed.replays.get("reduced_gradient")
    due = {} if once is None else context.read_state(once)
    is_led = once is None or any(
        number not in due or not are_equal(value, due[number])
        for number, value in predicted.items()
    )
    return predicted if is_led else {}


def _has_right_slot(context: Context) -> bool:
    """Whether another slot of a variable with a wrong one took what is due."""
    wrong = {case.key.variable for case in context.cases}
    owners = {context.infos[path].of for path in wrong}
    right = {key.variable for key in context.right} - wrong
    return any(context.infos[path].of in owners for path in right)


def _explain_unseen(context: Context, kinds: Sequence[_Kind]) -> Iterator[Hypothesis]:
    """The slots of an update by hand take no sum, or one over some replicas.

    Who updates by hand sums by hand, and what the slots take, the variables do, unless
    one device tells that these are elsewhere.
    """
    own, *others = list_feeds(context.replicas)
    if own.is_for_slots_alone(context):
        yield from _fit_feed(context, kinds, own, _ALONE)
    else:
        for found in _fit_feed(context, kinds, own, "missing-reduction"):
            yield replace(found, phase="variable")
    for kept, lost in list_subsets(context):
        words = f"a sum that lacks the gradient of {name_replicas(lost)}"
        part = make_part(kept, words)
        if not part.is_for_slots_alone(context):
            for found in _fit_feed(context, kinds, part, "replica-dropped"):
                yield replace(found, phase="variable", replicas=lost)
    for feed in others:
        if feed.is_for_slots_alone(context):
            yield from _fit_feed(context, kinds, feed, _ALONE)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Fed:
    """A wrong slot with what it may have taken.

    Attributes:
        number: Number of the case.
        case: The wrong slot.
        terms: The replicas' own gradients of its variable.
        gradient: What it should have taken.
    """

    number: int
    case: Pair
    terms: tuple[Array, ...]
    gradient: Array


class _Kind:
    """Wrong slots that share one factor, with what is asked of them for every feed."""

    def __init__(self, context: Context, slots: Sequence[_Fed]) -> None:
        self.slots = slots
        self._context = context
        self._rules: dict[int, SlotRule | None] = {}

    def is_share(self, share: float, power: int) -> bool:
        """Whether the rule takes this much of the gradient^power, as far as it shows.

        It shows where the old value and that power make all of what is due.
        """
        if power not in self._rules:
            cases = [(slot.number, slot.case) for slot in self.slots]
            pairs = pair_gradients(self._context, cases, power)
            self._rules[power] = fit_due_rule(pairs)
        due = self._rules[power]
        return due is None or abs(share - due.take) <= _NEAR * abs(due.take)


def _list_kinds(context: Context) -> list[_Kind]:
    """Those of which the gradients are known.

    Where those of some replicas overflow, what is due may have taken none of a step.
    """
    kinds: list[_Kind] = []
    for cases in group_by_kind(context):
        slots: list[_Fed] = []
        for number, case in cases:
            if find_overflowing(context, case.key.step):
                continue
            owner = context.infos[case.key.variable].of
            terms = find_locals(context, case, owner)
            gradient = context.find_due_gradient(case, owner) if owner else None
            if not terms or gradient is None or gradient.shape != case.observed.shape:
                continue
            slots.append(_Fed(number=number, case=case, terms=terms, gradient=gradient))
        kinds.append(_Kind(context, slots))
    return kinds


def _fit_feed(
    context: Context, kinds: Sequence[_Kind], feed: Feed, code: str
) -> Iterator[Hypothesis]:
    """One factor for each kind of slot."""
    predicted: dict[int, Array] = {}
    for kind in kinds:
        predicted |= _fit_power(context.cases, kind, feed)
    if predicted:
        yield Hypothesis(
            code=code, predicted=predicted, detail=f"it follows from {feed.words}"
        )


def _fit_power(cases: Sequence[Pair], kind: _Kind, feed: Feed) -> dict[int, Array]:
    """Fit errors by c (f^p - g^p), with the power p that leaves least.

    Where what is due shows how much of g^p the rule takes, c is that: a part of it, or
    its opposite, is no f in the place of g.

    Args:
        cases: The wrong values.
        kind: Some of them, with g, what they should have taken.
        feed: Makes f, what they took, and says which values of p to try.
    """
    best: tuple[float, dict[int, Array]] = (np.inf, {})
    taken = [feed.make(slot.terms, slot.case.key.replica) for slot in kind.slots]
    for power in feed.powers:
        rows = [
            make_error(slot.number, slot.case, found**power - slot.gradient**power)
            for slot, found in zip(kind.slots, taken, strict=True)
        ]
        weights = fit_weights(rows)
        if weights is None or not kind.is_share(float(weights[0]), power):
            continue
        fits = predict_rows(rows, weights)
        rest = sum(
            measure_norm(fits[row.number] - row.target)
            / (measure_norm(row.target) or 1.0)
            for row in rows
        )
        if rest < best[0]:
            best = (rest, predict_cases(cases, rows, weights))
    return best[1]


def explain_by_start(context: Context) -> Iterator[Hypothesis]:
    """A slot made in the first step starts from another constant."""
    if context.phase != "slot" or any(case.key.step > 0 for case in context.cases):
        return
    predicted = {}
    for number, case in context.list_cases():
        offset = case.observed - case.expected
        # Of a slot that was there before the step it is known how it started.
        if isinstance(case.base, float) and offset.size:
            predicted[number] = case.expected + float(np.mean(offset))
    if predicted:
        yield Hypothesis(
            code="slot-initial",
            predicted=predicted,
            detail="the slot starts from another value than on one device",
        )


def explain_by_stillness(context: Context) -> Iterator[Hypothesis]:
    """Slots that do not take the update: some replicas', or all of them.

    All stay as they were where a period or a condition is another than on one device.
    A slot that belongs to no variable, such as a loss scale, follows from the step as
    a whole: what became of its gradients tells more. One that leads a step, though it
    stays, took the gradient of the step before.
    """
    if context.phase != "slot":
        return
    owned = all(context.infos[case.key.variable].of for case in context.cases)
    if not (owned or context.spares_replicas) or lead_a_late_step(context):
        return
    code = "hyperparameter-differs"
    turn, advice = name_turn(context)
    words = f"as it was, where one device changes it{turn}"
    if context.spares_replicas:
        code = "slot-not-synchronized"
        words = "as it was there, while other replicas' slots take the update"
        advice = ""
    yield Hypothesis(
        code=code,
        predicted={
            number: find_base(case)
            for number, case in context.list_cases()
            if not is_applied_to_some(context, case.key.step)
        },
        detail=f"the slot stays {words}",
        advice=advice,
    )


def explain_by_own_way(context: Context) -> Iterator[Hypothesis]:
    """The replicas' slots differ, and nothing is known of why."""
    if context.phase != "slot" or context.replicas == 1:
        return
    if context.spares_replicas or _differ_by_replica(context):
        yield Hypothesis(
            code="slot-not-synchronized",
            predicted={number: case.observed for number, case in context.list_cases()},
            detail="the replicas' slots are meant to be equal and are not",
        )


def explain_by_number(context: Context) -> Iterator[Hypothesis]:
    """A number that the rule is given is another one, the same on all replicas."""
    if (
        context.phase != "slot"
        or context.spares_replicas
        or _differ_by_replica(context)
    ):
        return
    led = find_led_numbers(context.evidence)
    predicted = {
        number: case.observed
        for number, case in context.list_cases()
        if is_number(context.infos[case.key.variable])
        and case.key.variable not in led
        and not is_applied_to_some(context, case.key.step)
    }
    if predicted:
        yield Hypothesis(
            code="hyperparameter-differs",
            predicted=predicted,
            detail="the number is another than on one device",
        )


def _differ_by_replica(context: Context) -> bool:
    seen: dict[tuple[int, str], Array] = {}
    for case in context.cases:
        key = (case.key.step, case.key.variable)
        if not are_equal(seen.setdefault(key, case.observed), case.observed):
            return True
    return False
