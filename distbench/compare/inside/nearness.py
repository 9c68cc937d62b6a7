"""Whether two intermediate values are the same but for rounding."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from distbench.compare.arrays.bounds import find_roundoff
from distbench.trace.dtypes import DType, name_dtype
from distbench.trace.numbers import measure_errors, measure_finite

Array = npt.NDArray[Any]
Near = Callable[[Array, Array], bool]

_DIGITS = 0.75
"""Share of a dtype's digits to which values have to agree that are the same."""


def find_lost(dtype: DType) -> float:
    """Share of a value that rounding in its own dtype may be."""
    return math.pow(find_roundoff(name_dtype(dtype)), _DIGITS)


def make_near(lost: float, whole: Array, parts: Sequence[Array]) -> Near:
    """Says of two values whether they are equal but for rounding.

    Args:
        lost: Share of a value that rounding may be.
        whole: What one device has.
        parts: What replicas have: the largest number of all is the measure.
    """
    limit = lost * max(map(measure_finite, (whole, *parts)))
    left = _limit_unmasked(lost, limit, (whole, *parts))

    def near(one: Array, other: Array) -> bool:
        if one.shape != other.shape:
            return False
        wide = np.asarray(one, np.float64), np.asarray(other, np.float64)
        is_left = np.maximum(*map(np.abs, wide)) <= limit
        allowed = np.where(is_left, left, limit)
        return bool(np.all(measure_errors(*wide) <= allowed))

    return near


def _limit_unmasked(lost: float, limit: float, values: Sequence[Array]) -> float:
    """How far numbers may differ beside a mask, as the -1e9 of scores that are not due.

    One number stands wherever it masks, so large that any others are the same beside
    it. They are not made of it, so it has rounded none of them. One that stands alone
    may be what is left of others.
    """
    if not 1 < limit < math.inf or np.sum(np.abs(values[0]) > limit) < 2:
        return limit
    sizes = np.concatenate([np.abs(v.ravel().astype(np.float64)) for v in values])
    sizes = sizes[np.isfinite(sizes)]
    large, left = sizes[sizes > limit], sizes[sizes <= limit]
    if large.min() < (1 - lost) * large.max() or not left.size:
        return limit
    return lost * float(left.max())
