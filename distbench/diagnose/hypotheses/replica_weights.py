"""The weight that each replica's gradient has in a sum that was seen."""

from __future__ import annotations

import numpy as np

from distbench.compare.bounds import find_roundoff
from distbench.compare.least_squares import find_standard_errors, solve_least_squares
from distbench.compare.values import Array
from distbench.diagnose.context import Context

_LOOKED_AT = 1_000
"""So many numbers, of the first ones, are enough to see that they differ."""
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
    columns: list[Array] = []
    seen: list[Array] = []
    for _, case in context.list_cases():
        terms = context.find_terms(case)
        if terms:
            scale = max(float(np.max(np.abs(case.expected), initial=0.0)), 1e-300)
            columns.append(np.stack([t.ravel() for t in terms], axis=1) / scale)
            seen.append(case.observed.ravel() / scale)
    if not columns:
        return None
    matrix = np.concatenate(columns)
    # Replicas that have the same sum tell it once.
    different = np.unique(matrix[np.any(matrix != 0, axis=1)][:_LOOKED_AT], axis=0)
    if different.shape[0] < 2 * matrix.shape[1]:
        return None
    return matrix, np.concatenate(seen)
