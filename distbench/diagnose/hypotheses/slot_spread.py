"""Second moments about a mean, of the replicas' own gradients."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from distbench.compare.pair import Pair
from distbench.compare.values import Array, measure_norm
from distbench.diagnose.context import Context, Hypothesis
from distbench.diagnose.hypotheses.slot_statistic import keeps_gradients
from distbench.diagnose.hypotheses.update import fit_feature


def explain_by_own_squares(context: Context) -> Iterator[Hypothesis]:
    """A state takes the squares of own gradients in place of the square of their sum.

    Whatever else it takes: with the sum's distance from a mean m, squared, in it, that
    of N times each own gradient, averaged, is off by N Σ g_r² - S² in the same place,
    since (1/N) Σ (N g_r - m)² = N Σ g_r² - 2 m S + m². How much of it a step takes is
    fitted, one number for all variables.
    """
    n = context.replicas
    if n == 1 or not keeps_gradients(context):
        return

    for times, words in (
        (n, "of N times their own gradients, averaged"),
        (1, "of their own gradients, added up"),
    ):

        def find(case: Pair, times: int = times) -> Array | None:
            return _find_nearest(context, case, times)

        fitted = fit_feature(context, find)
        if fitted is None or fitted[0] <= 0:
            continue
        yield Hypothesis(
            code="slot-from-local-gradient",
            predicted=fitted[1],
            detail="where it takes the square of the sum of the gradients, about a "
            f"mean or not, it has the replicas' squares {words}",
        )


def _find_nearest(context: Context, case: Pair, times: int) -> Array | None:
    """What is too much of own squares, of the variable that a state is likest of.

    A state that a program keeps by hand need not bear the name of its variable.
    """
    error = case.observed - case.expected
    best, nearest = 0.0, None
    for info in context.infos.values():
        terms = context.find_terms_of(case, info.path)
        if not terms or terms[0].shape != error.shape:
            continue
        more = times * np.sum(np.square(terms), axis=0) - np.sum(terms, axis=0) ** 2
        size = measure_norm(more) * measure_norm(error)
        along = float(np.sum(more * error)) / size if size else 0.0
        if along > best:
            best, nearest = along, np.asarray(more)
    return nearest
