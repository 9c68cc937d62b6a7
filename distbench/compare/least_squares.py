"""Weights that come nearest to making one array of others."""

from __future__ import annotations

import numpy as np

from distbench.compare.values import Array


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
