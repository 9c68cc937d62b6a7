"""Losses and gradients of variables as they were some steps before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from distbench.compare.values import Array, measure_norm
from distbench.diagnose.context import Context, Hypothesis, Numbered, take_rows
from distbench.diagnose.names import name_lag
from distbench.trace import COMPUTED, WHOLE


def explain_by_late_read(context: Context) -> Iterator[Hypothesis]:
    """What one device computes from the same batch and earlier variables.

    Unlike a gradient that is applied late, this one is of its own step's batch. A copy
    that is made anew now and then is older in some steps than in others, so each step
    is asked by itself; all of its values are of the same age.
    """
    if context.phase not in COMPUTED or not context.evidence.earlier:
        return
    predicted: dict[int, Array] = {}
    lags: dict[int, int] = {}
    for step, cases in context.list_steps().items():
        found = [
            (_measure_distance(cases, values), lag, values)
            for lag in range(1, len(context.evidence.earlier) + 1)
            if (values := _predict(context, cases, lag))
        ]
        if found:
            _, lags[step], values = min(found, key=lambda item: item[:2])
            predicted.update(values)
    if predicted:
        behind = name_lag(max(lags.values()))
        most = "" if len(set(lags.values())) == 1 else "up to "
        yield Hypothesis(
            code="stale-read",
            predicted=predicted,
            detail=f"it was computed from the variables of {most}{behind} before",
        )


def _predict(context: Context, cases: Sequence[Numbered], lag: int) -> dict[int, Array]:
    """The values of a step, so many steps late; empty if one is not known."""
    trace = context.evidence.earlier[lag - 1]
    values: dict[int, Array] = {}
    for number, case in cases:
        value = trace.get(case.key)
        if value is None and context.replicas == 1:
            value = trace.get(case.key.at(WHOLE))
        if value is None:
            return {}
        values[number] = take_rows(value, case)
    return values


def _measure_distance(cases: Sequence[Numbered], values: dict[int, Array]) -> float:
    """How far the values are from the observed ones, each in parts of its size."""
    return sum(
        measure_norm(case.observed - values[number])
        / (measure_norm(case.observed) or 1.0)
        for number, case in cases
    )
