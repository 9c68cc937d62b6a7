"""Weights that come nearest to making one array of others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from distbench.trace.numbers import Array, measure_norm


def stack_scaled(
    values: Iterable[tuple[Array, Sequence[Array], float]],
) -> tuple[Array, Array] | None:
    """What several arrays are to be made of, and they, as one system of equations.

    Args:
        values: Each with the arrays that are to make it, of its shape, and the size by
            which to divide them all, so that every one weighs alike.

    Returns:
        [numbers, arrays] and [numbers]; None where there is nothing.
    """
    columns, targets = [], []
    for value, parts, size in values:
        columns.append(np.stack([part.ravel() / size for part in parts], axis=1))
        targets.append(value.ravel() / size)
    return (np.concatenate(columns), np.concatenate(targets)) if columns else None


def solve_least_squares(
    matrix: Array, target: Array, *, determined: bool = True
) -> Array | None:
    """Weights w that minimise ‖matrix w - target‖.

    None where not everything is finite, or, if they are to be `determined`, where
    other weights would do as well; else the shortest of these.
    """
    if not (np.all(np.isfinite(matrix)) and np.all(np.isfinite(target))):
        return None
    weights, _, rank, _ = np.linalg.lstsq(matrix, target, rcond=1e-9)
    if determined and rank < matrix.shape[1]:
        return None
    return np.asarray(weights, np.float64)


def fit_all(matrix: Array, target: Array, share: float) -> Array | None:
    """These weights, where they leave no more than a share of the target's norm."""
    weights = solve_least_squares(matrix, target)
    if weights is None:
        return None
    rest = measure_norm(target - matrix @ weights)
    return weights if rest <= share * measure_norm(target) else None


def find_standard_errors(
    matrix: Array, target: Array, weights: Array, roundoff: float
) -> Array:
    """How uncertain fitted weights are: s √diag((MᵀM)⁻¹), one for each.

    s is the spread of what they leave, and at least what rounding leaves of their sum.
    Columns that differ by no more than that have weights that may be anything, and
    grow against each other.

    Args:
        matrix: M, [numbers, weights], of more numbers than weights.
        target: What was fitted, [numbers].
        weights: The fit, [weights].
        roundoff: Unit roundoff of the dtype in which the target was computed.
    """
    freedom = matrix.shape[0] - matrix.shape[1]
    rest = float(np.linalg.norm(target - matrix @ weights)) / np.sqrt(freedom)
    spread = max(rest, roundoff * float(np.max(np.abs(matrix) @ np.abs(weights))))
    triangle = np.linalg.qr(matrix, mode="r")
    if not np.all(np.diag(triangle)):
        return np.full(weights.shape, np.inf)
    inverse = np.linalg.inv(triangle)
    return np.asarray(spread * np.linalg.norm(inverse, axis=1), np.float64)
