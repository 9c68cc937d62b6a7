"""Causes in a slot's rule: other numbers than on one device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from distbench.compare.arrays.pair import Pair
from distbench.compare.arrays.ratio import are_alike, are_same_factors
from distbench.diagnose.clues.cases import is_left
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.fit import (
    fit_weights,
    leaves_nothing,
    make_error,
    pick_features,
    predict_cases,
)
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.diagnose.hypotheses.slot_facts import (
    fit_due_rule,
    group_by_gradient,
    group_by_kind,
    is_sum_unseen,
)
from distbench.diagnose.names import name_lag
from distbench.trace import UPDATED
from distbench.trace.numbers import Array, are_equal, densify

Late = tuple[int, Array, Array]
"""Number of a case, the gradient of some steps before, and that of its own."""
_NONE = 1e-6
"""A fitted share that is no larger is what rounding leaves of 0."""


def explain_by_old_value(context: Context) -> Iterator[Hypothesis]:
    """The rule weighs the slot's old value k times as much, and the gradient right.

    With expected = β · before + b · g^p the error is (k - 1) β · before. All kinds of
    slots have to show the same k.
    """
    if context.phase != "slot" or context.spares_replicas:
        return
    for power in (1, 2):
        predicted: dict[int, Array] = {}
        ratios: list[float] = []
        for pairs in group_by_gradient(context, power):
            errors = [pick_features(row, (0,)) for row, _ in pairs]
            more, due = fit_weights(errors), fit_due_rule(pairs)
            if more is None or due is None or due.keep == 0:
                continue
            if leaves_nothing(errors, more):
                ratios.append(1 + float(more[0]) / due.keep)
                predicted |= predict_cases(context.cases, errors, more)
        if ratios and are_alike(ratios):
            yield _name_old_value(context, predicted, float(np.median(ratios)))


def _name_old_value(
    context: Context, predicted: Mapping[int, Array], ratio: float
) -> Hypothesis:
    """A whole multiple of the old value is one that was added so often."""
    times = round(ratio)
    is_whole = times > 1 and are_same_factors(ratio, times)
    words = ""
    if is_whole and times == context.replicas:
        words = f": N = {times}, as where each replica adds its own copy to the sum"
    return Hypothesis(
        code="momentum-repeated" if is_whole else "hyperparameter-differs",
        predicted=predicted,
        detail="the slot's rule takes the gradient as it should, and weighs its old "
        f"value {ratio:.6g} times as much{words}",
    )


def explain_by_memory(context: Context) -> Iterator[Hypothesis]:
    """Another β or another factor of the gradient in the slot's rule."""
    if context.phase != "slot":
        return
    code, words = "hyperparameter-differs", "than on one device"
    if context.spares_replicas:
        # A number that is wrong would be wrong on all replicas, as they share the code.
        code, words = "slot-not-synchronized", "there than on the other replicas"
    for power, by_step in _list_rules(context):
        predicted: dict[int, Array] = {}
        for pairs in group_by_gradient(context, power, by_step=by_step):
            rows = [row for row, _ in pairs]
            weights = fit_weights(rows)
            if weights is not None:
                predicted |= predict_cases(context.cases, rows, weights)
        if predicted:
            yield Hypothesis(
                code=code,
                predicted=predicted,
                detail="the slot's rule weighs its old value or the gradient otherwise "
                f"{words}",
            )


def explain_by_late_gradient(context: Context) -> Iterator[Hypothesis]:
    """The rule takes the gradient of an earlier step, though it was given this one's.

    Its error is then in proportion to what the two, or their squares, differ by. What
    is wrong in the first steps alone may lack a gradient for any reason.
    """
    if context.phase not in UPDATED:
        return
    last = max(case.key.step for case in context.cases)
    for lag in range(1, last + 1):
        predicted: dict[int, Array] = {}
        for cases in group_by_kind(context):
            found = [
                (number, *gradients)
                for number, case in cases
                if (gradients := _find_late(context, case, lag)) is not None
            ]
            if any(context.cases[number].key.step >= lag for number, *_ in found):
                predicted |= _predict_late(context, found)
        if predicted:
            yield Hypothesis(
                code="stale-gradient",
                phase="applied_gradient",
                predicted=predicted,
                detail=f"the rule takes the gradient of {name_lag(lag)} before",
            )


def _predict_late(context: Context, found: Sequence[Late]) -> dict[int, Array]:
    for power in (1, 2):
        rows = [
            make_error(number, context.cases[number], late**power - due**power)
            for number, late, due in found
        ]
        weights = fit_weights(rows)
        if weights is not None and leaves_nothing(rows, weights):
            return predict_cases(context.cases, rows, weights)
    return {}


def _find_late(context: Context, case: Pair, lag: int) -> tuple[Array, Array] | None:
    """A variable's gradient of some steps before, 0 if there was none, and this one."""
    owner = context.infos[case.key.variable].owner
    due = context.find_due_gradient(case, owner)
    step = case.key.step - lag
    earlier = replace(case, key=replace(case.key, step=step))
    late = context.find_due_gradient(earlier, owner) if step >= 0 else None
    if due is None or due.shape != case.expected.shape or (late is None and step >= 0):
        return None
    return np.zeros_like(due) if late is None else late, due


def explain_by_fed_factor(context: Context) -> Iterator[Hypothesis]:
    """The slot's rule takes c times the gradient: its error is in proportion to it.

    With expected = β · before + b · g^p and an error of κ g^p, c^p is 1 + κ / b. A rule
    may keep several averages: then each kind of slot has a power of its own, and all
    have to show the same c, whose sign a square does not tell.
    """
    if context.phase != "slot":
        return
    found = [_fit_factors(context, power) for power in (1, 2)]
    mixed: dict[int, Factored] = {}
    for kinds in found:
        mixed |= {kind: fit for kind, fit in kinds.items() if fit.leaves_nothing}
    sizes = [abs(fit.factor) for fit in mixed.values() if fit.factor is not None]
    if len(sizes) > 1 and are_alike(sizes):
        found.append(mixed)
    for kinds in found:
        factors = _list_factors(kinds)
        predicted: dict[int, Array] = {}
        for fit in kinds.values():
            predicted |= fit.predicted
        if predicted:
            ratio = float(np.median(factors)) if factors else None
            what = "the gradient"
            yield name_factor(context, predicted, ratio, "the slot's rule takes", what)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Factored:
    """What becomes of one kind of slot whose rule takes a multiple of the gradient.

    Attributes:
        predicted: The values, by number of the case.
        factor: The multiple; None where what is due does not tell it.
        is_signed: Whether it shows the sign, as the gradient does and its square not.
        leaves_nothing: Whether that explains the errors to a thousandth.
    """

    predicted: dict[int, Array]
    factor: float | None
    is_signed: bool
    leaves_nothing: bool


def _list_factors(kinds: Mapping[int, Factored]) -> list[float]:
    """What is known of the multiple, of slots that show its sign if any does."""
    known = [fit for fit in kinds.values() if fit.factor is not None]
    signed = [fit for fit in known if fit.is_signed] or known
    return [fit.factor for fit in signed if fit.factor is not None]


def _fit_factors(context: Context, power: int) -> dict[int, Factored]:
    """By kind of slots what they show if their rule takes the gradient^power."""
    found: dict[int, Factored] = {}
    for kind, pairs in enumerate(group_by_gradient(context, power)):
        errors = [pick_features(row, (1,)) for row, _ in pairs]
        weights = fit_weights(errors)
        if weights is None:
            continue
        due = fit_due_rule(pairs)
        factor = None
        if due is not None and due.take != 0:
            whole = 1 + float(weights[0]) / due.take
            if power == 1:
                factor = whole
            elif whole >= -_NONE:  # no square is negative
                factor = max(whole, 0.0) ** 0.5
        found[kind] = Factored(
            predicted=predict_cases(context.cases, errors, weights),
            factor=factor,
            is_signed=power == 1,
            leaves_nothing=leaves_nothing(errors, weights),
        )
    return found


def _is_left_now(context: Context, case: Pair) -> bool:
    """Whether one device leaves a slot as it was, and changes it in another step."""
    trace, path = context.evidence.reference, case.key.variable
    held = [densify(value) for _, value in trace.select(phase="slot", variable=path)]
    is_moved = any(not are_equal(value, held[0]) for value in held)
    return is_moved and is_left(case)


def name_factor(
    context: Context,
    predicted: Mapping[int, Array],
    ratio: float | None,
    who: str,
    what: str,
) -> Hypothesis:
    """A factor of what slots take; 1/N may be what a sum was divided by.

    Where no sum was seen, there is nothing but that and the rule between a slot and the
    replicas' own gradients, and the rule's numbers are those of one device.
    """
    if ratio is not None and abs(ratio) <= _NONE:
        ratio = 0.0
    if all(_is_left_now(context, case) for case in context.cases):
        return Hypothesis(
            code="hyperparameter-differs",
            predicted=predicted,
            detail=f"{who} {what}, where one device leaves the slot as it was: its "
            "turn comes in other steps",
        )
    words = "another multiple of" if ratio is None else f"{ratio:.6g} times"
    found = Hypothesis(
        code="scale-error",
        predicted=predicted,
        detail=f"{who} {'nothing of' if ratio == 0 else words} {what}",
        ratio=ratio,
    )
    n = context.replicas
    if ratio is None or n == 1:
        return found
    if not is_sum_unseen(context):
        if not are_same_factors(ratio, 1 / n):
            return found
        why = f": 1/N, for N = {n}, as if a mean over replicas stood in place of a sum"
        return replace(found, detail=found.detail + why)
    for factor, divisor in ((1 / n, f"N = {n}"), (1 / n**2, f"N² = {n**2}")):
        if are_same_factors(ratio, factor):
            owned = any(context.infos[case.key.variable].of for case in context.cases)
            return replace(
                found,
                code="mean-instead-of-sum",
                detail=f"{found.detail}: the sum is divided by {divisor}",
                phase="variable" if owned else None,
            )
    return found


def _list_rules(context: Context) -> Iterator[tuple[int, bool]]:
    """Powers of the gradient, first with one weight for all steps."""
    several = len({case.key.step for case in context.cases}) > 1
    for by_step in (False, True) if several else (False,):
        for power in (1, 2):
            yield power, by_step
