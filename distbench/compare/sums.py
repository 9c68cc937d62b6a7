"""How far the sum over the replicas may lie from that of their addends."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from distbench.compare.addends import Addends
from distbench.compare.bounds import (
    bound_additions,
    bound_sum,
    follow_drift,
    group_alike,
    limit_partial_sums,
    spread_additions,
    spread_sum,
)
from distbench.compare.measure import BITWISE, Margin
from distbench.compare.values import Array, measure_norm


def bound_reduction(
    addends: Addends, expected: Array, u: float, *, factor_rounds: bool = False
) -> Margin:
    """What a sum in any order may differ by, in its elements, its ratio and its total.

    Args:
        addends: Those of each replica.
        expected: Their sum, computed in float64.
        u: Unit roundoff of the accumulation; 0 does not round.
        factor_rounds: Whether a multiplication before or after the sum rounds as well.
    """
    roundings = addends.count() + (1 if factor_rounds else -1)
    if roundings == 0 or u == 0:
        return BITWISE
    magnitude = addends.measure()
    square = measure_norm(expected) ** 2
    if not np.isfinite(square) or not np.all(np.isfinite(magnitude)):
        return Margin(bound=bound_sum(magnitude, roundings, u))
    bound, spread = _bound_terms(addends, magnitude, expected, roundings, u)
    return Margin(
        bound=bound,
        ratio=spread(expected) / square if square > 0 else float("inf"),
        total=spread(np.ones_like(expected)),
    )


def _bound_terms(
    addends: Addends,
    magnitude: Array,
    expected: Array,
    roundings: int,
    u: float,
) -> tuple[Array, Callable[[Array], float]]:
    """Bound of each element of a sum, and limit of a weighted sum of their errors."""
    bound = bound_sum(magnitude, roundings, u)
    # Before the partial sums are there: of a large model both together fill the memory.
    groups = group_alike(expected)
    partial = limit_partial_sums(addends.totals)
    drift = follow_drift(addends.totals, partial, u)
    if roundings != len(addends.totals) - 1 or addends.counts:
        # The slices of a row are not known one by one, or a factor rounds as well.
        return (
            bound,
            lambda weights: (
                drift(weights) + spread_sum(weights, magnitude, groups, roundings, u)
            ),
        )
    # Where γ is large the looser formula may be the tighter one; both hold.
    bound = np.minimum(bound, bound_additions(partial, expected, u))
    return (
        bound,
        lambda weights: drift(weights) + spread_additions(weights, partial, groups, u),
    )
