"""How far the sum over the replicas may lie from that of their addends."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from distbench.compare.arrays.addends import Addends
from distbench.compare.arrays.bounds import (
    bound_additions,
    bound_sum,
    follow_drift,
    group_alike,
    limit_partial_sums,
    spread_additions,
    spread_sum,
)
from distbench.compare.arrays.measure import BITWISE, Margin
from distbench.trace.numbers import Array, measure_norm


def bound_reduction(
    addends: Addends,
    expected: Array,
    u: float,
    *,
    more: int = 0,
    find_lost: Callable[[Array], Array] = np.zeros_like,
) -> Margin:
    """What a sum in any order may differ by, in its elements, its ratio and its total.

    Args:
        addends: Those of each replica.
        expected: Their sum, computed in float64.
        u: Unit roundoff of the accumulation; 0 does not round.
        more: Roundings besides its additions. One of them may be that of a factor,
            which is the same for all elements.
        find_lost: Of the bound of the sum, what those roundings may lose besides.
    """
    roundings = addends.count() - 1 + more
    if u == 0 or not np.any(np.greater(roundings, 0)):
        return BITWISE
    magnitude = addends.measure()
    bound = bound_sum(magnitude, roundings, u)
    square = measure_norm(expected) ** 2
    if not np.isfinite(square) or not np.all(np.isfinite(magnitude)):
        with np.errstate(invalid="ignore"):  # Inf has no distance to Inf
            return Margin(bound=bound + find_lost(bound))
    # Of a large model each array is large: none outlives its use.
    groups = group_alike(expected)
    spread: Callable[..., float] = partial(
        spread_sum, magnitude=magnitude, roundings=roundings
    )
    # Or the slices of a row are not known one by one, or more than additions round.
    is_known = not (more or addends.counts)
    if is_known:
        del magnitude, spread
    sums = limit_partial_sums(addends.totals)
    if is_known:
        # Where γ is large the looser formula may be the tighter one; both hold.
        bound = np.minimum(bound, bound_additions(sums, expected, u))
        spread = partial(spread_additions, partial=sums)
    lost = find_lost(bound)
    drift = follow_drift(addends.totals, sums, u)

    def limit(weights: Array) -> float:
        steady = u * abs(float(np.sum(weights * expected))) if more else 0.0
        # A result that is too small for its dtype is lost whichever way, and not by
        # chance to either side.
        steady += float(np.sum(np.abs(weights) * lost))
        return drift(weights) + spread(weights, groups=groups, u=u) + steady

    return Margin(
        bound=bound + lost,
        ratio=limit(expected) / square if square > 0 else float("inf"),
        total=limit(np.broadcast_to(1.0, expected.shape)),
    )
