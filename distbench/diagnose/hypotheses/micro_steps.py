"""Gradients that a step takes of a variable several times, and adds up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from distbench.compare.arrays.least_squares import solve_least_squares, stack_scaled
from distbench.compare.arrays.ratio import SAME, are_same_factors
from distbench.diagnose.clues.cases import take_rows
from distbench.diagnose.clues.context import Context, Numbered
from distbench.diagnose.clues.fit import add_weighted, fit_cases
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.trace import COMPUTED, STATE, SUMMED, TraceKey, Value
from distbench.trace.intermediates import list_places
from distbench.trace.numbers import Array, measure_size

_CODE = "accumulation-scale"
_MOST = 32
"""More micro-steps than these are not told apart."""


def explain_by_number_of_micro_steps(context: Context) -> Iterator[Hypothesis]:
    """A whole number of micro-steps too much: k, 1/k, r/k or k/r.

    That gradients are accumulated is a fact that the tapes told: one of the two numbers
    must be the number of gradients which a step computed of each variable.
    """
    if context.phase in STATE:
        return
    made = context.evidence.observed.notes.get("micro_steps")
    cases = list(context.list_cases())
    if not isinstance(made, int) or made < 2:
        return
    fit = fit_cases(case for _, case in cases)
    if fit is None:
        return
    for other in range(1, 2 * made + 1):
        for ratio, words in (
            (made / other, f"{made}/{other}"),
            (other / made, f"{other}/{made}"),
        ):
            if other != made and are_same_factors(fit.ratio, ratio):
                yield Hypothesis(
                    code=_CODE,
                    predicted={i: ratio * case.expected for i, case in cases},
                    detail=f"of {made} micro-steps accumulated in a step it is {words} "
                    "times what it should be",
                    ratio=ratio,
                    of_due=True,
                )


def explain_by_weights_of_micro_steps(context: Context) -> Iterator[Hypothesis]:
    """Each micro-step with a weight of its own, where one device has other weights.

    What tapes gave was seen, by a look inside: both weights are fitted to all values
    together, and have to make up what is due as well as what was observed.
    """
    if context.phase not in (*COMPUTED, *SUMMED) or context.replicas == 1:
        return
    predicted: dict[int, Array] = {}
    told: list[tuple[Array, Array]] = []
    for cases in context.group_cases(lambda case: case.key.call).values():
        given = read_micro_steps(context, cases)
        if not given:
            return
        parts = {
            number: [np.sum(values, axis=0) for values in found]
            for number, found in given.items()
        }
        due = fit_parts(context, cases, parts, [case.expected for _, case in cases])
        seen = fit_parts(context, cases, parts, [case.observed for _, case in cases])
        if due is None or seen is None:
            return
        told.append((seen, due))
        predicted |= {n: add_weighted(seen, found) for n, found in parts.items()}
    if told and not _are_multiples(*told[0]):
        yield _name_cause(context, predicted, *told[0])


def read_micro_steps(
    context: Context, cases: Sequence[Numbered]
) -> Mapping[int, list[list[Array]]]:
    """What tapes gave for each case: by micro-step, and of each replica.

    Empty where nobody looked, or where a step takes one gradient or far too many.
    """
    given = {
        number: [
            [np.asarray(take_rows(value, case), np.float64) for value in values]
            for values in _list_given(context, case.key)
        ]
        for number, case in cases
    }
    counts = {len(found) for found in given.values()}
    return given if len(counts) == 1 and 1 < max(counts) <= _MOST else {}


def _list_given(context: Context, key: TraceKey) -> Iterator[Sequence[Value]]:
    """What the tapes of all replicas gave for a variable, each time that they did."""
    inside = context.evidence.inside
    if inside is None:
        return
    for place in list_places(inside.observed, key.step, key.variable):
        yield inside.observed.get_replicas(place)


def fit_parts(
    context: Context,
    cases: Sequence[Numbered],
    parts: Mapping[int, list[Array]],
    values: Sequence[Array],
) -> Array | None:
    """One weight for each part that makes all values of them; None where none does.

    One that has nothing of any value, as a part of a batch without examples, has 0.
    """
    stacked = stack_scaled(
        (value, parts[number], size)
        for (number, _), value in zip(cases, values, strict=True)
        if (size := max(map(measure_size, (value, *parts[number])))) > 0
    )
    if stacked is None or stacked[0].shape[0] < 2 * stacked[0].shape[1]:
        return None
    matrix, target = stacked
    weights = np.zeros(matrix.shape[1])
    has = np.any(matrix, axis=0)
    found = solve_least_squares(matrix[:, has], target)
    if found is None:
        return None
    weights[has] = found
    if not all(
        context.are_near(case, value, add_weighted(weights, parts[number]))
        for (number, case), value in zip(cases, values, strict=True)
    ):
        return None
    return weights


def _are_multiples(seen: Array, due: Array) -> bool:
    """Whether all weights are off by one factor, which has other causes."""
    size = float(np.vdot(due, due))
    factor = float(np.vdot(seen, due)) / size if size else 0.0
    return bool(np.all(np.abs(seen - factor * due) <= SAME * np.max(np.abs(seen))))


def _name_cause(
    context: Context, predicted: Mapping[int, Array], seen: Array, due: Array
) -> Hypothesis:
    words = ", ".join(
        f"number {number} counts {_tell(one)} where it counts {_tell(other)} on one "
        "device"
        for number, (one, other) in enumerate(zip(seen, due, strict=True), 1)
        if abs(one - other) > SAME
    )
    why, advice = _explain(seen, due, context.replicas)
    return Hypothesis(
        code=_CODE,
        predicted=predicted,
        detail=f"of the {len(seen)} gradients that a step adds up for a variable, "
        f"{words}{why}",
        advice=advice,
    )


def _explain(seen: Array, due: Array, n: int) -> tuple[str, str]:
    """What makes such weights, if that is known, and what to do."""
    known = np.abs(due) > SAME
    ratios = seen[known] / due[known]
    left = np.arange(len(due) - 1, -1, -1.0)[known]
    # The first one may be joined by the second before anything is done to it.
    times = (left, left + 1, np.minimum(left, len(due) - 2))

    def are_near(weights: Array | float) -> bool:
        return np.allclose(ratios, weights, rtol=SAME, atol=SAME**2)

    for power, what, advice in (
        (-1.0, "divided by N", "Divide once, when the last one is added."),
        (1.0, "summed over the replicas, or multiplied by N,", "Sum once, at the end."),
    ):
        if any(are_near(n ** (power * each)) for each in times):
            return (
                f": all that was accumulated is {what} again in each micro-step",
                advice,
            )
    is_lost = np.abs(ratios) <= SAME
    if np.any(is_lost) and np.allclose(ratios[~is_lost], 1, rtol=SAME, atol=0):
        return (
            ": what counts 0 is lost, as where the next one takes its place",
            "Add each to what is there before, and clear that after the update alone.",
        )
    return "", ""


def _tell(weight: float) -> str:
    return f"{0.0 if abs(weight) <= SAME else weight:.6g}"
