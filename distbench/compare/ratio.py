"""The fitted ratio of an observed value to the expected one."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from distbench.compare.values import Array, measure_size


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioFit:
    """Least-squares fit of observed = ratio · expected.

    Attributes:
        ratio: ⟨ŝ, s⟩ / ⟨s, s⟩.
        error: Its standard error from the residual; 0 for a single element.
        residual_share: ‖ŝ - ratio·s‖ / ‖ŝ - s‖: what a ratio alone leaves unexplained;
            0 where nothing deviates.
    """

    ratio: float
    error: float
    residual_share: float


def fit_ratio(observed: Array, expected: Array) -> RatioFit | None:
    """Fit a ratio; None where the expected value is 0 or not everything is finite."""
    scale = measure_size(expected)
    if scale == 0 or not math.isfinite(scale) or not np.isfinite(observed).all():
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        s, t = expected.ravel() / scale, observed.ravel() / scale
        square = float(s @ s)
        # Fitting the difference keeps the digits of a ratio that is nearly 1.
        difference = t - s
        excess = float(difference @ s) / square
        residual = difference - excess * s
    if not math.isfinite(excess):
        return None
    rest = math.sqrt(float(residual @ residual))
    whole = math.sqrt(float(difference @ difference))
    freedom = max(1, s.size - 1)
    return RatioFit(
        ratio=1 + excess,
        error=rest / math.sqrt(freedom * square),
        residual_share=rest / whole if whole else 0.0,
    )
