"""How much a correct run may deviate: formulas with their sources, nothing picked.

The one free number is `FALSE_ALARM`, a probability, not a tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache

import ml_dtypes
import numpy as np
import numpy.typing as npt

from distbench.compare.arrays.aligned import Number
from distbench.trace.dtypes import find_digits, find_dtype
from distbench.trace.numbers import BLOCK, Array, list_blocks

FALSE_ALARM = 1e-6
"""Chance that one statistical test rejects a correct value."""

SIGMAS = math.sqrt(2 * math.log(2 / FALSE_ALARM))
"""Standard deviations that a sub-Gaussian error exceeds with that chance."""

_WIDE = 2.0**-53
"""Unit roundoff of float64, in which the bench itself computes."""


def find_roundoff(dtype: str) -> float:
    """Unit roundoff u of a dtype; 0 for one that does not round."""
    digits = find_digits(dtype)
    return 0.0 if digits is None else 2.0**-digits


def compute_gamma(n: Number, u: float) -> Array:
    """γ_n = nu / (1 - nu), infinite where nu ≥ 1.

    Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., §3.1, Lemma 3.1:
    a product of n factors (1 + δ_i)^±1 with |δ_i| ≤ u is 1 + θ_n with |θ_n| ≤ γ_n.
    """
    small = np.maximum(n, 0) * u
    gamma = np.full(np.shape(small), math.inf)
    return np.divide(small, 1 - small, out=gamma, where=small < 1)


def bound_sum(magnitude: Array, roundings: Number, u: float) -> Array:
    """Largest error of a sum in any order: |ŝ - s| ≤ γ_{n-1} Σ|x_i|.

    Higham, §4.2, (4.4): whatever the order, each x_i takes part in at most n - 1
    additions. Additions cannot underflow inexactly (Higham, Problem 2.19); of what else
    rounds `bound_underflow` tells. 0 where all addends are 0, also if γ is infinite.
    The sum that it is held against is rounded too, in float64.

    Args:
        magnitude: Σ|x_i| for each element.
        roundings: Longest chain of roundings that an addend goes through; of sparse
            values one number for each row.
        u: Unit roundoff of the accumulation.
    """
    gamma = compute_gamma(roundings, u) + compute_gamma(roundings, _WIDE)
    bound = np.zeros_like(magnitude)
    return np.multiply(gamma, magnitude, out=bound, where=magnitude > 0)


def bound_underflow(least: Array, dtype: str) -> Array:
    """Largest error of a product or a quotient besides its relative one.

    Below the smallest normal number all numbers have one distance, so that rounding to
    the nearest leaves up to half of it, whatever the result.

    Args:
        least: The smallest absolute value that the exact result may have.
        dtype: The dtype of the result.
    """
    if find_digits(dtype) is None:
        return np.zeros_like(least)
    info = ml_dtypes.finfo(find_dtype(dtype))  # type: ignore[no-untyped-call]
    half = float(info.smallest_subnormal) / 2
    return np.where(least < float(info.smallest_normal), half, 0.0)


def spread_sum(
    weights: Array,
    magnitude: Array,
    groups: npt.NDArray[np.intp],
    roundings: Number,
    u: float,
) -> float:
    """Half-width of Σ w_i e_i for the rounding errors e_i of sums.

    Each of the n roundings behind element i is at most u Σ|x|_i and, in round to
    nearest, of mean zero and independent of the others (Higham and Mary, A new
    approach to probabilistic rounding error analysis, SIAM J. Sci. Comput. 41, 2019).
    Hoeffding's inequality then gives P(|Σ w_i e_i| > λ) ≤ 2 exp(-λ² / (2 Σ c_i²)) with
    c_i = u w_i Σ|x|_i √n.

    Elements whose sums have the same significand may round alike, so they are taken
    to be one: their c_i are added before they are squared. Who is alike is told by
    `group_alike`.
    """
    chains = np.sqrt(np.maximum(roundings, 0))
    scales = np.abs(weights * magnitude * chains).ravel()
    sums = np.bincount(groups, weights=scales)
    return SIGMAS * math.hypot(u, _WIDE) * math.sqrt(float(np.sum(sums * sums)))


def limit_partial_sums(terms: Sequence[npt.NDArray[np.generic]]) -> Array:
    """Largest |result| of each addition of a sum, whatever the order: [n-1, ...].

    A partial sum of j addends is at most the sum of the j largest of one sign. Any
    tree of additions has n - 1 inner nodes. One with m leaves below it has m - 1 of
    them, itself included, inside, so at most n - m others can be larger: the k-th
    largest has at most n - k + 1 leaves, as where addends are taken up one by one.
    """
    flat = [np.ravel(term) for term in terms]
    limits = np.empty((len(flat) - 1, flat[0].size))
    for block in list_blocks(flat[0].size):
        rising = np.sort(_stack(flat, block).T, axis=1)
        positive = np.cumsum(np.maximum(rising[:, ::-1], 0), axis=1)
        negative = np.cumsum(np.maximum(-rising, 0), axis=1)
        limits[:, block] = np.maximum(positive, negative)[:, 1:].T
    return limits.reshape((len(flat) - 1, *terms[0].shape))


def bound_additions(partial: Array, expected: Array, u: float) -> Array:
    """Largest error of a sum of known addends in any order: |ŝ - s| ≤ Σ|T̂_j δ_j|.

    Higham, §4.2, (4.3): the error is what rounding the partial sums T̂_j leaves, each at
    most half a unit in its last place, u 2^⌊log2|T̂_j|⌋. They exceed the exact
    ones by no more than γ Σ|x_i| of their addends, which is at most twice what these
    hold of one sign. The last one is the result, and lies no farther from the exact sum
    than what was lost before it.

    Half precision is added up in float32 and rounded again, which is the same as one
    rounding: 24 digits are at least 2 · 11 + 2 (Figueroa, When is double rounding
    innocuous?, SIGNUM Newsletter 30, 1995).

    Args:
        partial: Largest partial sums, of `limit_partial_sums`.
        expected: The sum, computed in float64.
        u: Unit roundoff of the accumulation.
    """
    limits, sums = partial.reshape(len(partial), expected.size), expected.ravel()
    bound = np.empty_like(sums)
    for block in list_blocks(len(sums)):
        bound[block] = _bound_block(limits[:, block], sums[block], u)
    return bound.reshape(expected.shape)


def _bound_block(partial: Array, expected: Array, u: float) -> Array:
    count = len(partial)
    gamma = compute_gamma(count, u)
    bound = np.zeros_like(expected)
    for number, limit in enumerate(partial):
        largest = np.multiply(
            1 + 2 * gamma, limit, out=np.zeros_like(limit), where=limit > 0
        )
        if number == count - 1:
            largest = np.minimum(largest, np.abs(expected) + bound)
        bound = bound + u * _find_binade(largest)
    # Σ|x_i| is at most twice what is of one sign.
    wide = compute_gamma(count, _WIDE)
    return np.asarray(bound + 2 * wide * partial[-1])


def _find_binade(array: Array) -> Array:
    """The power of two at or below each element; 0 for 0 and inf for inf."""
    _, exponents = np.frexp(array)
    powers = np.ldexp(1.0, exponents - 1)
    return np.where((array > 0) & np.isfinite(array), powers, array)


def spread_additions(
    weights: Array, partial: Array, groups: npt.NDArray[np.intp], u: float
) -> float:
    """Half-width of Σ w_i e_i for the rounding errors e_i of sums of known addends.

    As `spread_sum`, where the j-th rounding behind an element is at most u times the
    largest j-th partial sum.
    """
    square = 0.0
    for limit in partial:
        scales = (weights * limit).ravel()
        sums = np.bincount(groups, weights=np.abs(scales, out=scales))
        square += float(np.sum(sums * sums))
    return SIGMAS * math.hypot(u, _WIDE) * math.sqrt(square)


def follow_drift(
    terms: Sequence[npt.NDArray[np.generic]], partial: Array, u: float
) -> Callable[[Array], float]:
    """How far Σ w_i e_i is carried by roundings that are not of mean zero.

    A partial sum is a multiple of the unit Δ of its last place, so an addend x leaves
    there what it leaves on that grid: Δ rint(x/Δ) - x. Addends that vary by many Δ
    leave nothing on the average. Others do, and one below Δ/2 is lost as a whole: the
    sum stands still (Connolly, Higham and Mary, Stochastic rounding and its
    probabilistic backward error analysis, SIAM J. Sci. Comput. 43, 2021, §1). What the
    known addends leave on each grid is known as well. Which grid the j-th addition
    met is not: it is that of its largest partial sum, or a finer one, or, where nearly
    everything may have been rounded up, one that is coarser by a place.

    Args:
        terms: The addends.
        partial: Largest partial sums, of `limit_partial_sums`.
        u: Unit roundoff of the accumulation.

    Returns:
        A function of the weights w_i.
    """
    flat = [term.ravel() for term in terms]
    partial = partial.reshape(len(partial), flat[0].size)
    blocks = []
    for block in list_blocks(flat[0].size):
        finest = _stack(flat, block).std(axis=0) * _FINE
        # One addend alone is not rounded.
        risky = 2 * u * _find_binade(partial[-1:, block].sum(axis=0)) > finest
        if risky.any():
            blocks.append((block, risky))

    def drift(weights: Array) -> float:
        carried = np.zeros((len(partial), 0))
        for block, risky in blocks:
            found = _carry(
                weights.ravel()[block][risky],
                _stack(flat, block)[:, risky],
                2 * u * _find_binade(partial[:, block][:, risky]),
                u,
            )
            wider, other = sorted((carried, found), key=lambda a: -a.shape[1])
            carried = wider
            carried[:, : other.shape[1]] += other
        return float(np.abs(carried).max(axis=1, initial=0.0).sum())

    return drift


def _carry(weights: Array, stacked: Array, units: Array, u: float) -> Array:
    """Σ w_i e_i of each addition, by how much finer its grid is than `units` say.

    The first column is that of a grid that is coarser by a place.
    """
    finest = stacked.std(axis=0) * _FINE
    table = weights * np.stack(list(_list_left(stacked, units[-1], finest)))
    coarsest, places = np.frexp(2 * units[-1])[1], np.arange(table.shape[1])
    last = len(table) - 1  # nothing is left there
    found = np.zeros((len(units), last + 2))
    for number, row in enumerate(units):
        depth = np.where(row > 0, coarsest - np.frexp(row)[1], last)
        for finer in range(0 if (number + 1) * u >= _MUCH else 1, last + 2):
            found[number, finer] = np.sum(
                table[np.minimum(depth + finer - 1, last), places]
            )
    return found


def _stack(flat: Sequence[npt.NDArray[np.generic]], part: slice) -> Array:
    return np.stack([term[part] for term in flat]).astype(np.float64)


def _list_left(stacked: Array, coarsest: Array, finest: Array) -> Iterator[Array]:
    """What addends leave on the average on finer and finer grids, until nothing."""
    unit = 2 * coarsest
    left = np.ones_like(unit)
    while left.any():
        # A grid that is finer than their last place leaves nothing of itself.
        scale = np.where(unit > 0, unit, 1.0)
        left = np.mean(np.rint(stacked / scale) * scale - stacked, axis=0)
        left = np.where(unit > finest, left, 0.0)
        yield left
        unit = unit / 2


_FINE = 2.0**-6
"""Addends that vary by 64 units leave less than a two-thousandth of one on the average,
even where they are spread evenly between two limits."""
_MUCH = 2.0**-3
"""So many roundings, times u, may take a sum to its next power of two."""


def group_alike(expected: Array) -> npt.NDArray[np.intp]:
    """Of each element the number of its group, of those with the same significand."""
    significands = np.abs(np.frexp(expected.ravel())[0])
    if significands.size <= BLOCK:
        return np.unique(significands, return_inverse=True)[1].ravel()
    _, first, groups = np.unique(significands, return_index=True, return_inverse=True)
    # Numbered as they come, neighbours lie near each other in the sums of the groups.
    numbers = np.empty_like(first)
    numbers[np.argsort(first)] = np.arange(len(first))
    return np.asarray(numbers[groups.ravel()])


def predict_spread(samples: Sequence[float] | Array) -> float:
    """Upper limit of the next |x| given some of mean zero from the same source.

    Prediction interval of Student's t with as many degrees of freedom as samples (the
    mean is known to be 0): t √(mean of squares). Infinite without a sample.
    """
    if not len(samples):
        return math.inf
    mean_square = float(np.dot(samples, samples)) / len(samples)
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
