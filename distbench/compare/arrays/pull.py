"""How a penalty or a decay pulls at a variable θ: with the gradient a θ + b sign(θ)."""

from __future__ import annotations

import numpy as np

from distbench.compare.arrays.least_squares import solve_least_squares
from distbench.compare.arrays.ratio import SAME
from distbench.trace.numbers import Array, measure_size

Pull = tuple[float, float]
"""The numbers a and b."""


def tells_pull(theta: Array) -> bool:
    """Whether a gradient may tell a from b: where all |θ| are alike any pair will do.

    What a pull adds to the loss, a θ²/2 + b |θ|, is known then alone.
    """
    return bool(np.ptp(np.abs(theta)) > SAME * measure_size(theta))


def fit_pull(theta: Array, gradient: Array) -> Pull | None:
    """The pull that comes nearest to a gradient; None where not all is finite.

    Args:
        theta: The variable, or some of it: float64.
        gradient: Of the same shape.
    """
    columns = np.stack([theta.ravel(), np.sign(theta).ravel()], axis=1)
    weights = solve_least_squares(columns, gradient.ravel(), determined=False)
    return None if weights is None else (float(weights[0]), float(weights[1]))


def apply_pull(pull: Pull, theta: Array) -> Array:
    """Its gradient where a variable is θ: float64, of the shape of θ."""
    a, b = pull
    return np.asarray(a * theta + b * np.sign(theta))
