"""What replicas share out besides examples, each divided by its own count of it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from distbench.compare.arrays.pair import Pair
from distbench.compare.arrays.ratio import SAME, are_alike
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.fit import (
    Row,
    add_weighted,
    fit_weights,
    leaves_nothing,
    name_weights,
)
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.trace import WHOLE
from distbench.trace.numbers import Array


def explain_by_own_counts(context: Context) -> Iterator[Hypothesis]:
    """What each replica computes should count w_r times; fitted to one device's.

    Replicas may deal out the heads of a model, or classes, of which no shard alone has
    the part that one of them takes. With w_r for that of replica r they add up to what
    one device has. Of means over parts that hold shares c_r of it all, divided by N,
    w_r is N c_r; the shares add up to 1.
    """
    if not context.root or context.phase == "loss" or context.replicas == 1:
        return
    predicted: dict[int, Array] = {}
    told: list[Array] = []
    for cases in context.list_steps().values():
        rows = [
            Row(number=number, target=case.expected, features=tuple(case.terms))
            for number, case in cases
            if case.key.replica == WHOLE and len(case.terms) == context.replicas
        ]
        weights = fit_weights(rows) if len(rows) == len(cases) else None
        if weights is None or np.min(weights) <= 0 or not leaves_nothing(rows, weights):
            return
        told.append(weights)
        predicted |= {n: _leave_rest(case, weights) for n, case in cases}
    if not told or are_alike(told[0]):
        return  # a factor of all of them is that of the loss
    n = context.replicas
    shares = name_weights(told[0] / np.sum(told[0]))
    of_what = "each replica's loss is a mean over a part of its own"
    for code, total, words in (
        ("mean-of-means", n, " divided by N, so that every part weighs 1/N"),
        ("loss-not-scaled", 1, f", not divided by N = {n}"),
        ("loss-scaled-twice", n**2, ", divided by N twice"),
    ):
        if all(abs(np.sum(weights) / total - 1) <= SAME for weights in told):
            yield Hypothesis(
                code=code,
                predicted=predicted,
                detail=f"{of_what}{words}; of what one device has the parts are "
                f"{shares}",
            )
            return
    counted = name_weights(told[0])
    yield Hypothesis(
        code="scale-error",
        predicted=predicted,
        detail="to add up to what one device has, the replicas' gradients would have "
        f"to count {counted} times what they do",
    )


def _leave_rest(case: Pair, weights: Array) -> Array:
    """What is observed, less what the weights leave of what is expected."""
    return np.asarray(
        case.observed + case.expected - add_weighted(weights, tuple(case.terms))
    )
