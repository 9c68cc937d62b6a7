"""Causes that apply a rule too often in one step: the whole update, or a slot's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from distbench.compare.arrays.ratio import SAME
from distbench.compare.state.leading import is_trained
from distbench.diagnose.clues.cases import find_base, find_tolerance
from distbench.diagnose.clues.context import Context, Numbered
from distbench.diagnose.clues.fit import fit_weights, list_step_errors, predict_cases
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.diagnose.clues.settings import tell_as_much
from distbench.diagnose.hypotheses.slot_facts import (
    SlotRule,
    find_locals,
    fit_due_rule,
    group_by_kind,
    pair_gradients,
)
from distbench.diagnose.hypotheses.whole_updates import is_whole
from distbench.trace import UPDATED, Trace
from distbench.trace.numbers import Array, densify, measure_norm, measure_size


def explain_by_repeated_replay(context: Context) -> Iterator[Hypothesis]:
    """The state is what the one-device update leaves when it is applied k times.

    Whether the whole update was repeated or a slot's rule alone is told by the model
    variables.
    """
    if context.phase not in UPDATED:
        return
    for trace in context.evidence.fed.repeated:
        count = int(str(trace.notes["times"]))
        predicted = context.read_state(trace)
        if not predicted:
            continue
        whole = context.phase == "variable" or _is_whole(context, trace)
        longer = ""
        if context.phase == "variable" and _only_lengthens(context, predicted, count):
            if _was_right_before(context):
                continue
            longer = f", or the learning rate is {count} times as large"
            longer += tell_as_much(context.evidence, count)
        yield Hypothesis(
            code="update-repeated" if whole else "slot-repeated",
            predicted=predicted,
            detail=f"the {'whole update' if whole else 'slot'} is applied {count} "
            f"times in one step{longer}",
            ratio=float(count),
            phase="variable" if whole else None,
        )


def _only_lengthens(
    context: Context, predicted: Mapping[int, Array], count: int
) -> bool:
    """Whether repeating the update does no other than to take k times the step.

    It does so where the slots are right and the step does not depend on the variable.
    """
    for number, value in predicted.items():
        case = context.cases[number]
        step = case.expected - find_base(case)
        rest = measure_norm(value - case.expected - (count - 1) * step)
        if rest > SAME * measure_norm(step):
            return False
    return True


def _was_right_before(context: Context) -> bool:
    """Whether a wrong variable took a step before that was right, and no mere rounding.

    Who applies an update several times does so in that step as well; a rate that
    follows a count of steps may be right in the first ones.
    """
    begin = min(case.key.step for case in context.cases)
    before = {key for key in context.right if key.step < begin}
    for _, case in context.list_cases():
        tolerance = measure_size(np.asarray(find_tolerance(case, context.replicas)))
        for key in before:
            if key.variable != case.key.variable:
                continue
            seen = context.evidence.observed.get(key)
            start = context.evidence.get_before(key.step, "variable", key.variable)
            if seen is None or start is None:
                continue
            if measure_size(densify(seen) - densify(start)) > tolerance:
                return True
    return False


def _is_whole(context: Context, repeated: Trace) -> bool:
    """Whether the variables of the wrong slots went where a repeated update leads."""
    once = context.evidence.fed.replays.get("reduced_gradient")
    return once is not None and bool(is_whole(context, repeated.get, once.get))


def explain_by_repeated_slot(context: Context) -> Iterator[Hypothesis]:
    """The slot's rule applied k times in one step, told from the slot alone.

    For a rule x → βx + u, the second application adds β times what the first did:
    f(f(x)) - f(x) = β (f(x) - x). So observed - expected = λ (expected - before) with
    λ = β + … + β^(k-1); β = 1 for accumulators. β is fitted from the expected values;
    without it any λ in (0, 1] or a whole λ will do.
    """
    if context.phase != "slot":
        return
    predicted: dict[int, Array] = {}
    times: set[int] = set()
    for cases in group_by_kind(context):
        rows = list_step_errors(cases)
        weights = fit_weights(rows)
        if weights is None:
            return
        count = _count_times(context, cases, float(weights[0]))
        if count is None:
            return
        times.add(count)
        predicted |= predict_cases(context.cases, rows, weights)
    if len(times) != 1 or not predicted:
        return
    count = times.pop()
    yield Hypothesis(
        code="slot-repeated",
        predicted=predicted,
        detail=f"the slot is applied {count} times in one step",
        ratio=float(count),
    )


def _count_times(
    context: Context, cases: Sequence[Numbered], factor: float
) -> int | None:
    """How often the rule was applied, given λ."""
    most = max(8, context.replicas)
    rule = _fit_rule(context, cases)
    beta = 0.0 if rule is None else rule[0].keep
    candidates = range(2, most + 1)
    if 0 < beta < 1.0001:
        for count in candidates:
            total = sum(beta**power for power in range(1, count))
            if abs(factor - total) <= SAME * max(1.0, total):
                return count
        return None
    for count in candidates:
        if abs(factor - (count - 1)) <= SAME * count:
            return count
    return 2 if 0 < factor < 1 else None


def _fit_rule(
    context: Context, cases: Sequence[Numbered]
) -> tuple[SlotRule, int] | None:
    """The rule of a kind of slots, and the power of the gradient in it."""
    for power in (1, 2):
        rule = fit_due_rule(pair_gradients(context, cases, power))
        if rule is not None:
            return rule, power
    return None


def explain_by_slot_of_each(context: Context) -> Iterator[Hypothesis]:
    """The slot's rule applied once for each replica, to its share of the gradient.

    A rule x → βx + c u^p is applied N times, with u the replicas' own gradients one
    after the other, or each time an N-th of their sum.
    """
    if context.phase != "slot" or context.replicas == 1:
        return
    n = context.replicas
    fitted = ((cases, _fit_rule(context, cases)) for cases in group_by_kind(context))
    # What keeps nothing of its old value, as a gradient that is kept for the next step,
    # shows no repetition.
    kinds = [
        (cases, *found)
        for cases, found in fitted
        if found is not None and abs(found[0].keep) > SAME
    ]
    for words, shares in (
        ("an N-th of the gradient each time", lambda terms: n * [sum(terms) / n]),
        ("the replicas' own gradients one after the other", list),
        ("the replicas' own gradients, last to first", lambda terms: terms[::-1]),
    ):
        predicted: dict[int, Array] = {}
        for cases, rule, power in kinds:
            for number, case in cases:
                owner = context.infos[case.key.variable].of
                terms = find_locals(context, case, owner)
                if not terms:
                    continue
                value = find_base(case)
                for share in shares(terms):
                    value = rule.keep * value + rule.take * share**power
                predicted[number] = value
        if predicted:
            yield Hypothesis(
                code="slot-repeated",
                predicted=predicted,
                detail=f"the slot is applied {n} times in one step, to {words}",
                ratio=float(n),
            )


def explain_by_repeated_update(context: Context) -> Iterator[Hypothesis]:
    """The step is a whole multiple of what it should be.

    For who updates by hand, whose update cannot be repeated on one device, and for
    counts for which that was not done.
    """
    if context.phase != "variable":
        return
    tried = {1, *(trace.notes["times"] for trace in context.evidence.fed.repeated)}
    counts = {*range(2, 9), context.replicas, context.replicas**2}
    has_rate = all(
        is_trained(context.evidence, case.key.variable) for case in context.cases
    )
    if has_rate and _was_right_before(context):
        return
    for count in sorted(counts - tried):
        yield Hypothesis(
            code="update-repeated",
            predicted={
                number: case.base + count * (case.expected - case.base)
                for number, case in context.list_cases()
            },
            detail=f"the update is applied {count} times in one step"
            + f", or the learning rate is {count} times as large" * has_rate
            + tell_as_much(context.evidence, count),
            ratio=float(count),
        )
