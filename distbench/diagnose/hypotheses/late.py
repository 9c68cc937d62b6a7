"""Variables as they were some steps before: in what is computed, or in a copy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from distbench.compare.arrays.pair import Pair
from distbench.compare.state.leading import has_gradient
from distbench.diagnose.clues.cases import take_rows
from distbench.diagnose.clues.context import Context, Numbered
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.diagnose.clues.keepers import find_held
from distbench.diagnose.names import name_lag
from distbench.trace import COMPUTED, UPDATED, WHOLE, TraceKey, Value, VariableInfo
from distbench.trace.numbers import Array, densify, measure_norm

LATE_READ = "stale-read"


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
            code=LATE_READ,
            predicted=predicted,
            detail=f"it was computed from the variables of {most}{behind} before",
        )


def explain_by_late_copy(context: Context) -> Iterator[Hypothesis]:
    """A copy of a trained variable as that was some steps before.

    On one device each step has it made anew from what the step finds. A copy that is
    held for some steps there as well, or goes a part of the way, is another thing:
    what moves such state has its turn, and which one is a matter of numbers.
    """
    if context.phase not in UPDATED or context.spares_replicas:
        return
    predicted: dict[int, Array] = {}
    lags: list[int] = []
    sources: list[str] = []
    for path, cases in context.group_cases(lambda case: case.key.variable).items():
        source = _find_source(context, path)
        if source is None:
            continue
        for number, case in cases:
            found = _find_past(context, source, case)
            if found is not None:
                lag, predicted[number] = found
                lags.append(lag)
                sources.append(source.path)
    if predicted:
        most = "" if len(set(lags)) == 1 else "up to "
        yield Hypothesis(
            code=LATE_READ,
            predicted=predicted,
            detail=f"it holds '{sources[0]}' as that was {most}{name_lag(max(lags))} "
            "before, where one device copies it anew in every step; what is computed "
            "of it is as old",
        )


def _find_source(context: Context, path: str) -> VariableInfo | None:
    """The trained variable that one device copies to another one in every step."""
    evidence = context.evidence
    last = evidence.reference.steps - 1
    left = evidence.reference.get(_name_left(context.infos[path], last))
    if left is None or has_gradient(evidence, path):
        return None
    named = context.work_out("named by values", lambda: _name_by_values(context, last))
    source = named.get(_sum_up(left))
    return source if source and _is_copied(context, path, source) else None


def _name_by_values(context: Context, step: int) -> Mapping[int, VariableInfo]:
    """Trained variables by what they hold as a step of one device begins."""
    named: dict[int, VariableInfo] = {}
    for info in context.infos.values():
        is_trained = info.trainable or has_gradient(context.evidence, info.path)
        value = context.evidence.get_before(step, "variable", info.path)
        if info.role == "variable" and is_trained and value is not None:
            named.setdefault(_sum_up(value), info)
    return named


def _is_copied(context: Context, path: str, source: VariableInfo) -> bool:
    evidence, copy = context.evidence, context.infos[path]
    for step in range(evidence.reference.steps):
        left = evidence.reference.get(_name_left(copy, step))
        found = evidence.get_before(step, "variable", source.path)
        if left is None or found is None:
            return False
        if not np.array_equal(densify(left), densify(found)):
            return False
    return True


def _name_left(info: VariableInfo, step: int) -> TraceKey:
    """What a step of one device leaves of a variable."""
    return TraceKey(step=step, phase=info.role, variable=info.path, replica=WHOLE)


def _sum_up(value: Value) -> int:
    """A number that values have in common if they are equal: large ones are many."""
    return hash(densify(value).tobytes())


def _find_past(
    context: Context, source: VariableInfo, case: Pair
) -> tuple[int, Array] | None:
    """How many steps before a variable was what a copy holds, and that value.

    None for what it is as the step finds it, which a cluster may have wrong.
    """
    for lag in range(case.key.step + 1):
        earlier = replace(case.key, step=case.key.step - lag)
        value = find_held(context.evidence, source, earlier)
        if value is not None and np.array_equal(value, case.observed):
            return (lag, value) if lag else None
    return None


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
