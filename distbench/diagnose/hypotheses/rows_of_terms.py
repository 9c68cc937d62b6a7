"""A term of the loss that looks at some rows alone, those of the examples at hand."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from distbench.compare.arrays.ratio import SAME
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.fit import Row
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.diagnose.hypotheses.terms import list_terms_of_cases
from distbench.trace.numbers import Array


def explain_by_rows_of_terms(context: Context) -> Iterator[Hypothesis]:
    """A penalty on the rows that a batch looks up, which some replicas look up each.

    One device has such a term once for each row of the global batch, and N replicas
    have it k times, as k of them look that row up, or k/N times if each divides by N.
    k is a whole number, so there is nothing that is fitted.
    """
    rows = list_terms_of_cases(context)
    n = context.replicas
    for place in range(len(rows[0].features) if rows else 0):
        for unit, words in (
            (1.0, "once for each replica that has the row"),
            (1 / n, f"1/N = 1/{n} of what it should for each replica that has the row"),
        ):
            predicted = _count_rows(context, rows, place, unit)
            if predicted:
                yield Hypothesis(
                    code="regularizer-not-scaled",
                    predicted=predicted,
                    detail=f"of the {len(rows[0].features)} terms of the loss, in the "
                    f"order in which they are added up, number {place + 1} looks at "
                    "the rows of a replica's own examples alone, so that all together "
                    f"it counts {words}",
                )


def _count_rows(
    context: Context, rows: list[Row], place: int, unit: float
) -> dict[int, Array]:
    """What comes of whole numbers of units in each row; nothing if they are alike."""
    predicted: dict[int, Array] = {}
    found: set[float] = set()
    for row in rows:
        case, term = context.cases[row.number], row.features[place]
        if term.ndim < 2:
            return {}
        flat = term.reshape(len(term), -1)
        square = np.sum(flat**2, axis=1)
        error = (case.observed - case.expected).reshape(flat.shape)
        more = np.zeros(len(term))
        np.divide(np.sum(error * flat, axis=1), square, out=more, where=square > 0)
        counts = np.round((1 + more) / unit)
        if np.any(np.abs((1 + more) / unit - counts) > SAME):
            return {}
        if np.any((counts < 0) | (counts > context.replicas)):
            return {}
        found |= set(counts[square > 0].tolist())
        predicted[row.number] = case.expected + (
            (unit * counts - 1)[:, None] * flat * (square > 0)[:, None]
        ).reshape(term.shape)
    return predicted if len(found) > 1 else {}
