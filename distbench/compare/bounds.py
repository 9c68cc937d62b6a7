"""How much a correct run may deviate: formulas with their sources, nothing picked.

The one free number is `FALSE_ALARM`, a probability, not a tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np

from distbench.compare.values import Array

FALSE_ALARM = 1e-6
"""Chance that one statistical test rejects a correct value."""

SIGMAS = math.sqrt(2 * math.log(2 / FALSE_ALARM))
"""Standard deviations that a sub-Gaussian error exceeds with that chance."""

_ROUNDOFF = {
    "float16": 2.0**-11,
    "bfloat16": 2.0**-8,
    "float32": 2.0**-24,
    "float64": 2.0**-53,
}


def find_roundoff(dtype: str) -> float:
    """Unit roundoff u of a dtype; 0 for one that does not round."""
    return _ROUNDOFF.get(dtype, 0.0)


def compute_gamma(n: int, u: float) -> float:
    """γ_n = nu / (1 - nu), infinite where nu ≥ 1.

    Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., §3.1, Lemma 3.1:
    a product of n factors (1 + δ_i)^±1 with |δ_i| ≤ u is 1 + θ_n with |θ_n| ≤ γ_n.
    """
    if n <= 0:
        return 0.0
    return n * u / (1 - n * u) if n * u < 1 else math.inf


def bound_sum(magnitude: Array, roundings: int, u: float) -> Array:
    """Largest error of a sum in any order: |ŝ - s| ≤ γ_{n-1} Σ|x_i|.

    Higham, §4.2, (4.4): whatever the order, each x_i takes part in at most n - 1
    additions. Additions cannot underflow inexactly (Higham, Problem 2.19), so no term
    for subnormal numbers is needed. 0 where all addends are 0, also if γ is infinite.
    The sum that it is held against is rounded too, in float64.

    Args:
        magnitude: Σ|x_i| for each element.
        roundings: Longest chain of roundings that an addend goes through.
        u: Unit roundoff of the accumulation.
    """
    gamma = compute_gamma(roundings, u) + compute_gamma(roundings, _ROUNDOFF["float64"])
    bound = np.zeros_like(magnitude)
    return np.multiply(gamma, magnitude, out=bound, where=magnitude > 0)


def spread_sum(
    weights: Array, magnitude: Array, expected: Array, roundings: int, u: float
) -> float:
    """Half-width of Σ w_i e_i for the rounding errors e_i of sums.

    Each of the n roundings behind element i is at most u Σ|x|_i and, in round to
    nearest, of mean zero and independent of the others (Higham and Mary, A new
    approach to probabilistic rounding error analysis, SIAM J. Sci. Comput. 41, 2019).
    Hoeffding's inequality then gives P(|Σ w_i e_i| > λ) ≤ 2 exp(-λ² / (2 Σ c_i²)) with
    c_i = u w_i Σ|x|_i √n.

    Elements whose sums have the same significand may round alike, so they are taken
    to be one: their c_i are added before they are squared.
    """
    scales = np.abs(weights * magnitude).ravel()
    significands = np.abs(np.frexp(expected.ravel())[0])
    _, groups = np.unique(significands, return_inverse=True)
    sums = np.bincount(groups.ravel(), weights=scales)
    u = math.hypot(u, _ROUNDOFF["float64"])
    return SIGMAS * u * math.sqrt(roundings * float(np.sum(sums * sums)))


def predict_spread(samples: Sequence[float]) -> float:
    """Upper limit of the next |x| given some of mean zero from the same source.

    Prediction interval of Student's t with as many degrees of freedom as samples (the
    mean is known to be 0): t √(mean of squares). Infinite without a sample.
    """
    if not samples:
        return math.inf
    mean_square = sum(x * x for x in samples) / len(samples)
    return find_t_quantile(len(samples)) * math.sqrt(mean_square)


@cache
def find_t_quantile(freedom: int, tail: float = FALSE_ALARM) -> float:
    """The t with P(|T| > t) = tail for Student's distribution."""
    low, high = 0.0, 1.0
    while _compute_t_tail(high, freedom) > tail:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        if _compute_t_tail(middle, freedom) > tail:
            low = middle
        else:
            high = middle
    return high


def _compute_t_tail(t: float, freedom: int) -> float:
    """P(|T| > t): Abramowitz and Stegun, 26.7.3 (odd) and 26.7.4 (even)."""
    angle = math.atan(t / math.sqrt(freedom))
    cosine = math.cos(angle)
    if freedom % 2:
        term, total = cosine, 0.0
        for k in range(1, freedom, 2):
            total += term
            term *= cosine * cosine * (k + 1) / (k + 2)
        inside = 2 / math.pi * (angle + math.sin(angle) * total)
    else:
        term, total = 1.0, 0.0
        for k in range(0, freedom, 2):
            total += term
            term *= cosine * cosine * (k + 1) / (k + 2)
        inside = math.sin(angle) * total
    return 1 - inside
