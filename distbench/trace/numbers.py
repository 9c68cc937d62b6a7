"""Recorded values as numbers of float64: how large they are, and how far apart."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from distbench.trace.dtypes import find_digits, find_dtype, is_whole, name_dtype
from distbench.trace.values import SparseRows, Value, get_numbers

Array = npt.NDArray[np.float64]
BLOCK = 1 << 13
"""Numbers that are computed with at a time, where there are many.

They stay in the processor's cache, and are fewer than the 10,000 from which OpenBLAS
shares a product among threads, which wait for each other where cores are busy.
"""
_LEAST_SQUARE = 1e-250
"""Squares that are lost to underflow count for nothing beside a larger one."""


def densify(value: Value) -> Array:
    """The whole value in float64."""
    if isinstance(value, SparseRows):
        return value.to_dense()
    return np.asarray(value, dtype=np.float64)


def is_finite(value: Value) -> bool:
    """Whether a value has neither Inf nor NaN."""
    return bool(np.isfinite(get_numbers(value)).all())


def take_numbers(value: Value) -> Array:
    """The numbers of a value as they were recorded, in float64: of sparse ones slices.

    TensorFlow's norm of a sparse gradient is that of its slices.
    """
    return np.asarray(get_numbers(value), dtype=np.float64)


def name_value(value: Value) -> str:
    """Name of the dtype in which a value was computed."""
    return name_dtype(get_numbers(value).dtype)


def round_to(array: Array, dtype: str) -> Array:
    """Round float64 values to a narrower dtype and widen them again."""
    if find_digits(dtype) is None:
        return np.rint(array) if is_whole(dtype) else array
    with np.errstate(all="ignore"):
        return np.asarray(array.astype(find_dtype(dtype)), dtype=np.float64)


def are_equal(left: npt.NDArray[Any], right: npt.NDArray[Any]) -> bool:
    """Whether two arrays hold the same numbers, NaN where the other has NaN."""
    if left is right:
        return True
    if left.shape != right.shape:
        return False
    same = left == right
    if same.all():
        return True
    # Mostly the first number that differs settles it: it is no NaN.
    if not np.isnan(left.flat[same.argmin()]):
        return False
    return bool((same | (np.isnan(left) & np.isnan(right))).all())


def measure_errors(observed: Array, expected: Array) -> Array:
    """Absolute error of each element: 0 where both hold the same Inf or NaN.

    A NaN on one side only is an infinite error.
    """
    with np.errstate(all="ignore"):
        errors: Array = np.abs(observed - expected)
    if not np.isnan(errors).any():
        return errors
    same = (observed == expected) | (np.isnan(observed) & np.isnan(expected))
    return np.where(same, 0.0, np.where(np.isnan(errors), math.inf, errors))


def measure_gap(left: Array, right: Array) -> float:
    """How far apart two elements in the same place are at most; equal Inf or NaN is 0.

    Infinite where one alone has such a number, and between two shapes.
    """
    if left.shape != right.shape:
        return math.inf
    return float(np.max(measure_errors(left, right), initial=0.0))


def measure_size(array: npt.NDArray[np.generic]) -> float:
    """Largest absolute value; 0 for an empty array, NaN where one is."""
    most = float(np.maximum.reduce(array, axis=None, initial=0.0))
    least = float(np.minimum.reduce(array, axis=None, initial=0.0))
    return abs(max(most, -least))  # of -0 as well


def measure_distance(left: Array, right: Array) -> float:
    """Largest absolute difference of two arrays of one shape; NaN where one is."""
    flat, other = left.ravel(), right.ravel()
    sizes = [measure_size(flat[b] - other[b]) for b in list_blocks(flat.size)]
    return float(np.max(sizes, initial=0.0))


def list_blocks(size: int) -> Iterator[slice]:
    """The parts of so many numbers."""
    return (slice(begin, begin + BLOCK) for begin in range(0, size, BLOCK))


def measure_finite(array: npt.NDArray[np.generic]) -> float:
    """Largest absolute value of the elements that are finite; 0 if there are none."""
    size = measure_size(array)
    return size if math.isfinite(size) else measure_size(array[np.isfinite(array)])


def measure_norm(array: Array) -> float:
    """Euclidean norm over all elements, without overflow."""
    flat = array.ravel()
    square = _add_squares(flat, 1.0)
    if _LEAST_SQUARE < square < math.inf:
        return math.sqrt(square)
    size = measure_size(array)
    if size == 0.0 or not math.isfinite(size):
        return size
    return size * math.sqrt(_add_squares(flat, size))


def _add_squares(flat: Array, unit: float) -> float:
    square = 0.0
    for block in list_blocks(flat.size):
        part = np.asarray(flat[block], np.float64)
        part = part if unit == 1.0 else part / unit
        # Unlike other products it does not complain where this overflows.
        square += float(np.vdot(part, part))
    return square
