"""Steps that go the right way and are as long as they should be times a number."""

from __future__ import annotations

import math
from collections.abc import Iterator

from distbench.compare.state.leading import has_gradient
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.diagnose.clues.settings import tell_as_much
from distbench.diagnose.clues.turns import name_turn
from distbench.diagnose.hypotheses.update import MEANT, fit_feature
from distbench.trace.numbers import Array

_DIVIDED = (
    "The sum of the gradients is right before the update: look there for a division by "
    "the number of replicas, and for a learning rate that is divided by it."
)
_STILL = (
    "Look whether it is among the variables that the optimizer is handed there, and "
    "for a condition, a filter by name or kind of gradient, or a factor of 0."
)


def explain_by_rate(context: Context) -> Iterator[Hypothesis]:
    """The step is right but for its length: another learning rate."""
    if context.phase != "variable":
        return
    fitted = fit_feature(context, lambda case: case.expected - case.base)
    if fitted is None:
        return
    weight, predicted = fitted
    n, code = context.replicas, "scale-error"
    ratio, advice = 1 + weight, ""
    words = f"the step is {1 + weight:.8g} times as long as it should be"
    is_unseen = all(context.find_gradient(c) is None for _, c in context.list_cases())
    if n > 1 and math.isclose(n * (1 + weight), 1, rel_tol=MEANT):
        words = f"the step is 1/{n} of what it should be: it is divided by N = {n}"
        code = "mean-instead-of-sum" if is_unseen else "hyperparameter-differs"
        advice = "" if is_unseen else _DIVIDED
    elif abs(1 + weight) < MEANT:
        # What rounding leaves of 0 is no number to look for.
        words, ratio = "it stays as it was, where one device changes it", 0.0
        advice = _STILL
        if not _is_any_trained(context):
            code = "hyperparameter-differs"
            turn, advice = name_turn(context)
            words += turn
    elif weight > -1:
        code = "hyperparameter-differs"
    yield Hypothesis(
        code=code,
        predicted=predicted,
        detail=words + tell_as_much(context.evidence, ratio),
        ratio=ratio,
        advice=advice,
    )


def _is_any_trained(context: Context) -> bool:
    """Whether a gradient of any of the wrong variables was seen."""
    led = {case.key.variable for case in context.cases}
    return any(has_gradient(context.evidence, path) for path in led)


def explain_by_schedule(context: Context) -> Iterator[Hypothesis]:
    """Steps go the right way, each with another wrong length: another schedule."""
    if context.phase != "variable":
        return
    lengths: dict[int, float] = {}
    predicted: dict[int, Array] = {}
    for step in dict.fromkeys(case.key.step for case in context.cases):
        fitted = fit_feature(
            context, lambda case: case.expected - case.base, steps=(step,)
        )
        if fitted is None:
            return
        lengths[step] = 1 + fitted[0]
        predicted.update(fitted[1])
    if len(lengths) > 1 and min(lengths.values()) > 0:
        words = ", ".join(f"{length:.6g}" for length in lengths.values())
        yield Hypothesis(
            code="hyperparameter-differs",
            predicted=predicted,
            detail=f"the steps are {words} times as long as they should be",
            ratio=next(iter(lengths.values())),
        )
