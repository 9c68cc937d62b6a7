"""How far the sum over the replicas may lie from that of their addends."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from distbench.compare.bounds import (
    bound_additions,
    bound_sum,
    follow_drift,
    limit_partial_sums,
    spread_additions,
    spread_sum,
)
from distbench.compare.measure import BITWISE, Margin
from distbench.compare.values import Aligned, Array, measure_norm


def bound_reduction(
    terms: Sequence[Aligned], expected: Array, u: float, *, factor_rounds: bool = False
) -> Margin:
    """What a sum in any order may differ by, in its elements, its ratio and its total.

    Args:
        terms: The addends of each replica.
        expected: Their sum, computed in float64.
        u: Unit roundoff of the accumulation; 0 does not round.
        factor_rounds: Whether a multiplication before or after the sum rounds as well.
    """
    # A row may be met several times by one replica: every slice is an addend.
    counts = [1 if t.counts is None else t.counts for t in terms]
    addends = int(np.max(np.sum(np.broadcast_arrays(*counts), axis=0), initial=1))
    roundings = addends + 1 if factor_rounds else addends - 1
    if roundings == 0 or u == 0:
        return BITWISE
    magnitude = np.sum([t.magnitude for t in terms], axis=0)
    square = measure_norm(expected) ** 2
    if not np.isfinite(square) or not np.all(np.isfinite(magnitude)):
        return Margin(bound=bound_sum(magnitude, roundings, u))
    bound, spread = _bound_terms(terms, magnitude, expected, roundings, u)
    return Margin(
        bound=bound,
        ratio=spread(expected) / square if square > 0 else float("inf"),
        total=spread(np.ones_like(expected)),
    )


def _bound_terms(
    terms: Sequence[Aligned],
    magnitude: Array,
    expected: Array,
    roundings: int,
    u: float,
) -> tuple[Array, Callable[[Array], float]]:
    """Bound of each element of a sum, and limit of a weighted sum of their errors."""
    bound = bound_sum(magnitude, roundings, u)
    totals = [t.total for t in terms]
    partial = limit_partial_sums(totals)
    drift = follow_drift(totals, partial, u)
    if roundings != len(terms) - 1 or any(t.counts is not None for t in terms):
        # The slices of a row are not known one by one, or a factor rounds as well.
        return (
            bound,
            lambda weights: (
                drift(weights) + spread_sum(weights, magnitude, expected, roundings, u)
            ),
        )
    # Where γ is large the looser formula may be the tighter one; both hold.
    bound = np.minimum(bound, bound_additions(partial, expected, u))
    return (
        bound,
        lambda weights: (
            drift(weights) + spread_additions(weights, partial, expected, u)
        ),
    )
