"""What replicas share out besides examples, each divided by its own count of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain

import numpy as np

from distbench.compare.arrays.ratio import SAME, are_alike, are_near
from distbench.diagnose.clues.context import Context, Numbered
from distbench.diagnose.clues.fit import Row, fit_weights, name_weights, predict_rows
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.diagnose.hypotheses.micro_steps import read_micro_steps
from distbench.trace import WHOLE
from distbench.trace.numbers import Array


def explain_by_own_counts(context: Context) -> Iterator[Hypothesis]:
    """What each replica computes should count w_r times; fitted to one device's.

    Replicas may deal out the heads of a model, or classes, of which no shard alone has
    the part that one of them takes. With w_r for that of replica r they add up to what
    one device has. Of means over parts that hold shares c_r of it all, divided by N,
    w_r is N c_r; the shares add up to 1. So it is with what a replica has of each of M
    micro-steps, where tapes were seen to give it: in M sums of means w is M c.
    """
    if not context.root or context.phase == "loss" or context.replicas == 1:
        return
    for of_what, list_parts in (
        ("", _take_terms),
        (" in each micro-step", _take_micro_steps),
    ):
        cause = _weigh_parts(context, of_what, list_parts)
        if cause is not None:
            yield cause


def _take_terms(
    context: Context, cases: Sequence[Numbered]
) -> Mapping[int, Sequence[Array]]:
    """By case what each replica adds to it; none where that is not known of all."""
    found = {
        number: tuple(case.terms)
        for number, case in cases
        if case.key.replica == WHOLE and len(case.terms) == context.replicas
    }
    return found if len(found) == len(cases) else {}


def _take_micro_steps(
    context: Context, cases: Sequence[Numbered]
) -> Mapping[int, Sequence[Array]]:
    """By case what tapes gave in each micro-step of each replica, if that adds up."""
    if any(case.key.replica != WHOLE for _, case in cases):
        return {}
    given = read_micro_steps(context, cases)
    found = {number: tuple(chain(*given[number])) for number in given}
    adds_up = all(
        context.are_near(case, case.observed, np.sum(found[number], axis=0))
        for number, case in cases
        if found
    )
    return found if adds_up else {}


def _weigh_parts(
    context: Context,
    of_what: str,
    list_parts: Callable[[Context, Sequence[Numbered]], Mapping[int, Sequence[Array]]],
) -> Hypothesis | None:
    predicted: dict[int, Array] = {}
    told: list[Array] = []
    for cases in context.list_steps().values():
        parts = list_parts(context, cases)
        rows = [
            Row(number=number, target=case.expected, features=tuple(parts[number]))
            for number, case in cases
            if parts
        ]
        weights = fit_weights(rows) if rows else None
        if weights is None or np.min(weights) <= 0:
            return None
        made = predict_rows(rows, weights)
        if not all(
            are_near(made[row.number], row.target, row.target, *row.features)
            for row in rows
        ):
            return None
        told.append(weights)
        predicted |= {
            number: case.observed + case.expected - made[number]
            for number, case in cases
        }
    if not told or are_alike(told[0]):
        return None  # a factor of all of them is that of the loss
    n = context.replicas
    shares = name_weights(told[0] / np.sum(told[0]))
    of_what = f"each replica's loss{of_what} is a mean over a part of its own"
    for code, total, words in (
        ("mean-of-means", n, " divided by N, so that every part weighs 1/N"),
        ("loss-not-scaled", 1, f", not divided by N = {n}"),
        ("loss-scaled-twice", n**2, ", divided by N twice"),
    ):
        due = total * len(told[0]) / n
        if all(abs(np.sum(weights) / due - 1) <= SAME for weights in told):
            return Hypothesis(
                code=code,
                predicted=predicted,
                detail=f"{of_what}{words}; of what one device has the parts are "
                f"{shares}",
            )
    counted = name_weights(told[0])
    return Hypothesis(
        code="scale-error",
        predicted=predicted,
        detail="to add up to what one device has, the replicas' gradients would have "
        f"to count {counted} times what they do",
    )
