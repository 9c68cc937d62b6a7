"""The weight that each replica's gradient has in a sum that was seen."""

from __future__ import annotations

import numpy as np

from distbench.compare.arrays.bounds import find_roundoff
from distbench.compare.arrays.least_squares import (
    find_standard_errors,
    solve_least_squares,
    stack_scaled,
)
from distbench.diagnose.clues.context import Context
from distbench.trace.numbers import Array, measure_size

_LOOKED_AT = 1_000
"""So many numbers, of the first ones, are enough to see that they differ."""
_LEAST = 1e-300
"""A size to divide by where all is 0."""
_TOLD = 10
"""The largest weight has to be at least so many times every standard error."""


def fit_replica_weights(context: Context) -> Array | None:
    """Weight of each replica in the observed sum, over all wrong values together."""
    stacked = _stack_terms(context)
    return None if stacked is None else solve_least_squares(*stacked)


def fit_told_weights(context: Context) -> Array | None:
    """The same weights; None where the observed values do not determine them.

    If replicas have nearly the same gradients, huge weights that cancel explain
    whatever is wrong.
    """
    stacked = _stack_terms(context)
    weights = None if stacked is None else solve_least_squares(*stacked)
    if stacked is None or weights is None:
        return None
    roundoff = max(find_roundoff(case.dtype) for _, case in context.list_cases())
    errors = find_standard_errors(*stacked, weights, roundoff)
    return weights if np.all(_TOLD * errors <= np.max(np.abs(weights))) else None


def _stack_terms(context: Context) -> tuple[Array, Array] | None:
    """The addends of all wrong values, [numbers, replicas], and what was observed.

    Every value weighs alike; None where there are too few numbers.
    """
    stacked = stack_scaled(
        (case.observed, terms, max(measure_size(case.expected), _LEAST))
        for _, case in context.list_cases()
        if (terms := context.find_terms(case))
    )
    if stacked is None:
        return None
    matrix, _ = stacked
    # Replicas that have the same sum tell it once.
    different = np.unique(matrix[np.any(matrix != 0, axis=1)][:_LOOKED_AT], axis=0)
    if different.shape[0] < 2 * matrix.shape[1]:
        return None
    return stacked
