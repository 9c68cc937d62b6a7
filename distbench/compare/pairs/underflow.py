"""What averages and factors lose where their results are below the normal numbers."""

from __future__ import annotations

import numpy as np

from distbench.compare.arrays.addends import Addends
from distbench.compare.arrays.bounds import bound_underflow
from distbench.trace.numbers import Array


def bound_lost(
    addends: Addends, expected: Array, dtype: str, bound: Array, *, scaled: bool
) -> Array:
    """How far a sum may be off besides its roundings, element by element.

    Whoever takes the mean and adds up N equal means has what one of them loses N times,
    where |s| / N is no normal number. Who multiplies each replica's own addend loses
    something of each that is none. Who multiplies the sum loses no more than a mean.

    Args:
        addends: Those of each replica, times their factor.
        expected: Their sum.
        dtype: The dtype of the sum.
        bound: How far its additions leave the sum from that.
        scaled: Whether there is a factor.
    """
    replicas = len(addends.totals)
    if addends.counts:
        # Each slice is divided, or multiplied, and how large one is is not known.
        least = np.zeros_like(expected)
        most = replicas * addends.count() * bound_underflow(least, dtype)
        return np.where(addends.measure() > 0, most, 0.0)
    least = np.maximum(np.abs(expected) - bound, 0) / replicas
    lost = replicas * bound_underflow(least, dtype)
    if scaled:
        each = np.zeros_like(expected)
        for total in addends.totals:
            size = np.abs(np.asarray(total, np.float64))
            each += np.where(size > 0, bound_underflow(size, dtype), 0.0)
        lost = np.maximum(lost, each)
    return np.where(addends.measure() > 0, lost, 0.0)
