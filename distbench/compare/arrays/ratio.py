"""The fitted ratio of an observed value to the expected one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from distbench.trace.numbers import (
    Array,
    list_blocks,
    measure_errors,
    measure_finite,
    measure_size,
)

SAME = 1e-3
"""Fitted factors that are no farther apart are taken for one number, and a fit that
leaves no larger a share for one that leaves nothing. Both ask only what it is that was
found: what a prediction leaves of the values decides whether it is."""


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


def fit_common_ratio(pairs: Iterable[tuple[Array, Array]]) -> RatioFit | None:
    """Fit one ratio to several values, each given with the one that is expected.

    None where there are none, or as `fit_ratio` has it.
    """
    seen, wanted = [], []
    for observed, expected in pairs:
        seen.append(np.ravel(observed))
        wanted.append(np.ravel(expected))
    return fit_ratio(np.concatenate(seen), np.concatenate(wanted)) if seen else None


def fit_multiple(observed: Array, whole: Array) -> float | None:
    """By what number an array was multiplied; None if something else was done."""
    fit = fit_ratio(observed, whole)
    if fit is None:
        return None
    rest = measure_size(observed - fit.ratio * whole)
    return fit.ratio if rest <= SAME * measure_size(observed) else None


def fit_ratio(observed: Array, expected: Array) -> RatioFit | None:
    """Fit a ratio; None where the expected value is 0 or not everything is finite.

    What is finite on neither side has no part in it.
    """
    if not np.isfinite(observed).all():
        either = np.isfinite(observed) | np.isfinite(expected)
        observed, expected = observed[either], expected[either]
    scale = measure_size(expected)
    if scale == 0 or not math.isfinite(scale) or not np.isfinite(observed).all():
        return None
    t, s = observed.ravel(), expected.ravel()
    square = product = rest = whole = 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        # Fitting the difference keeps the digits of a ratio that is nearly 1.
        for block in list_blocks(s.size):
            line = s[block] / scale
            difference = t[block] / scale - line
            square += float(line.dot(line))
            product += float(difference.dot(line))
            whole += float(difference.dot(difference))
        excess = product / square
        for block in list_blocks(s.size):
            line = s[block] / scale
            residual = t[block] / scale - line - excess * line
            rest += float(residual.dot(residual))
    if not math.isfinite(excess):
        return None
    freedom = max(1, s.size - 1)
    return RatioFit(
        ratio=1 + excess,
        error=math.sqrt(rest) / math.sqrt(freedom * square),
        residual_share=math.sqrt(rest) / math.sqrt(whole) if whole else 0.0,
    )


def are_alike(factors: Sequence[float] | Sequence[Sequence[float]] | Array) -> bool:
    """Whether fitted factors, or rows of them, are the same, as far as a fit tells.

    Args:
        factors: At least one; shape `[n]`, or `[n, factors]`.
    """
    rows = np.asarray(factors)
    return bool(np.max(np.ptp(rows, axis=0)) <= SAME * np.max(np.abs(rows)))


def are_same_factors(left: float, right: float) -> bool:
    """Whether two fitted factors stand for one number, as far as a fit tells."""
    return left == right or abs(left - right) <= SAME * abs(right)


def are_near(left: Array, right: Array, *sizes: Array, share: float = SAME) -> bool:
    """Whether arrays of one shape are the same, as far as a share of a size tells.

    What is not finite is near nothing but itself: of Inf any share is Inf.

    Args:
        left: One array.
        right: The other.
        sizes: Of whose largest finite numbers it is a share; if none, of both's.
        share: It; of what is no fit half of the digits, say.
    """
    if left.shape != right.shape:
        return False
    limit = share * max(map(measure_finite, sizes or (left, right)))
    return bool(np.all(measure_errors(left, right) <= limit))


def share_by_size(sizes: Sequence[int]) -> tuple[float, ...]:
    """The part n_r/G of the examples that each shard has; of no examples 0.

    Args:
        sizes: Numbers of examples, by replica.
    """
    return tuple(size / max(1, sum(sizes)) for size in sizes)


def are_means_by_size(weights: Sequence[float] | Array, sizes: Sequence[int]) -> bool:
    """Whether shards have means times their part of the examples, m_r n_r/G.

    With its share c_r of what the means are taken over, each m_r n_r/G counts c_r G/n_r
    in the mean of all: so these, weighed by the sizes, add up to 1.

    Args:
        weights: What each shard counts, [replicas].
        sizes: Their numbers of examples.
    """
    return bool(abs(np.dot(weights, share_by_size(sizes)) - 1) <= SAME / 10)
