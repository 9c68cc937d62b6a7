"""Sums of numbers that have room in their dtype, and that have none themselves."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np

from distbench.compare.bounds import find_roundoff
from distbench.compare.pair import Pair
from distbench.compare.values import Array
from distbench.trace.dtypes import find_digits, find_dtype


def let_overflow(pair: Pair, factor: float) -> Pair:
    """A sum in which Inf is expected where it was observed, and may have come to be.

    Which of finite addends are added first decides whether a part of their sum has no
    room. It has at most what all addends of one sign make up; where those of both have
    no room, Inf may have met -Inf, which is NaN.

    Args:
        pair: A sum, in float64, and one that was added up in `pair.dtype`.
        factor: What the addends are multiplied by, before they are summed or after.
    """
    places = ~np.isfinite(pair.observed) & np.isfinite(pair.expected)
    if find_digits(pair.dtype) is None or not places.any():
        return pair
    most = float(ml_dtypes.finfo(find_dtype(pair.dtype)).max)  # type: ignore[no-untyped-call]
    terms = np.array([term[places] for term in pair.terms])
    # A product is rounded, and what is divided after the sum is larger before.
    rounded = 1 + 2 * len(terms) * find_roundoff(pair.dtype)
    slack = rounded * max(1.0, 1 / abs(factor)) if factor else rounded
    above = _add_one_sign(terms) * slack >= most
    below = _add_one_sign(-terms) * slack >= most
    seen = pair.observed[places]
    may = np.where(np.isnan(seen), above & below, np.where(seen > 0, above, below))
    expected = pair.expected.copy()
    expected[places] = np.where(may, seen, expected[places])
    return replace(pair, expected=expected, tested=[])


def _add_one_sign(terms: Array) -> Array:
    """What the positive addends make up: [n, ...] as [...]."""
    return np.asarray(np.maximum(terms, 0).sum(axis=0))
