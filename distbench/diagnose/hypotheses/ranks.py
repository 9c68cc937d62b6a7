"""Sums that weigh each element by its rank among the replicas, as robust ones do."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from distbench.compare.arrays.ratio import SAME, are_alike, are_same_factors
from distbench.diagnose.clues.addends import ADDED, list_sources
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.fit import (
    Row,
    fit_weights,
    leaves_nothing,
    name_weights,
    predict_rows,
)
from distbench.diagnose.clues.hypothesis import NONLINEAR, Hypothesis
from distbench.trace.numbers import Array


def explain_by_ranks(context: Context) -> Iterator[Hypothesis]:
    """A median, a trimmed mean, an extreme: Σ_k w_k g_(k), with one w for everything.

    g_(k) is the k-th of an element's N addends, in the order of their values or of
    their sizes.
    """
    if context.phase not in ADDED or context.replicas < 2:
        return
    sources = [s for s in list_sources(context) if len(s.terms) == context.replicas]
    for words in ("value", "size"):
        rows = [
            Row(
                number=s.number,
                target=s.case.observed,
                features=_sort(np.stack(s.terms), by_size=words == "size"),
            )
            for s in sources
        ]
        weights = fit_weights(rows)
        if weights is None or not leaves_nothing(rows, weights):
            continue
        if are_alike(weights):
            continue  # the order does not matter
        numbers = name_weights(weights)
        yield Hypothesis(
            code=NONLINEAR,
            predicted=predict_rows(rows, weights),
            detail=f"each element is {_name(np.asarray(weights))} of the "
            f"replicas' own: from the smallest {words} to the largest they weigh "
            f"{numbers}",
        )


def _sort(terms: Array, *, by_size: bool) -> tuple[Array, ...]:
    order = np.argsort(np.abs(terms) if by_size else terms, axis=0, kind="stable")
    return tuple(np.take_along_axis(terms, order, axis=0))


def _name(weights: Array) -> str:
    """What it is called: the mean of some ranks, N times that, or their sum."""
    count = len(weights)
    kept = np.flatnonzero(np.abs(weights) > SAME * np.max(np.abs(weights)))
    first, last = int(kept[0]), int(kept[-1])
    total = float(np.sum(weights))
    is_mean = are_alike(weights[first : last + 1]) and any(
        are_same_factors(total, times) for times in (1, count, len(kept))
    )
    if not is_mean:
        return "a combination"
    if first == last and first in (0, count - 1):
        return "an extreme"
    if last - first <= 1 and first + last == count - 1:
        return "the median"
    if first > 0 and last < count - 1:
        return "a trimmed mean"
    return "a combination"
