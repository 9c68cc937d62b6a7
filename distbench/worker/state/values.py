"""Recorded values of a task: compared, perturbed, brought into another form."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from distbench.trace import SparseRows, Value, get_numbers
from distbench.trace.dtypes import find_digits, is_floating
from distbench.trace.numbers import densify, measure_finite, measure_gap

_WIDE = 53
"""Significand bits of float64, in which whole numbers are compared."""


def count_digits(dtype: str) -> int:
    """Significand bits of a dtype; those of float64 where it does not round."""
    return find_digits(dtype) or _WIDE


def have_same_bits(left: Value | None, right: Value) -> bool:
    """Whether two values have the same bits, or rows; what was not seen agrees."""
    if left is None or left is right:
        return True
    if isinstance(left, SparseRows) or isinstance(right, SparseRows):
        return bool(np.array_equal(densify(left), densify(right), equal_nan=True))
    return left.shape == right.shape and left.tobytes() == right.tobytes()


def are_near(
    left: Value,
    right: Value,
    dtype: str | None,
    *,
    part: float = 1.0,
    find_noise: Callable[[], float] = float,
) -> bool:
    """Whether two values agree in half of the digits of their largest element.

    Args:
        left: One value.
        right: Another one.
        dtype: In which they were computed; None is what they lie in.
        part: As what part of the left one the right one is meant.
        find_noise: How far apart any element may be all the same; asked if it matters.
    """
    wide = densify(left) * part, densify(right)
    share = find_half(dtype or get_numbers(left).dtype.name)
    gap = measure_gap(*wide)
    return gap <= share * measure_finite(wide[0]) or gap <= find_noise()


def find_half(dtype: str) -> float:
    """Half of the digits of a dtype, as a share of what has them all."""
    return float(2.0 ** (-count_digits(dtype) / 2))


def fit_part(left: Value | None, right: Value | None) -> float:
    """As what part of one value another is nearest to it; 1 where nothing tells."""
    if left is None or right is None:
        return 1.0
    wide = densify(left), densify(right)
    size = float(np.vdot(wide[0], wide[0]))
    if wide[0].shape != wide[1].shape or size == 0:
        return 1.0
    return float(np.vdot(*wide)) / size


def make_alike(value: Value, seen: Value | None) -> Value:
    """Dense where what it stands in for was: a rule may take nothing else."""
    is_dense = seen is not None and not isinstance(seen, SparseRows)
    return value.to_dense() if isinstance(value, SparseRows) and is_dense else value


def leaves_digits(value: Value, bits: int) -> bool:
    """Whether the last digits of every number of a value are zeros."""
    array = get_numbers(value)
    digits = count_digits(array.dtype.name)
    wide = np.asarray(array, np.float64)
    top = float(np.max(np.abs(wide), initial=0.0))
    if top == 0 or not math.isfinite(top):
        return True
    unit = 2.0 ** (math.frexp(top)[1] - digits + bits)
    return not np.any(wide % unit)


def find_counts(
    states: Sequence[Mapping[tuple[str, int], Any]],
) -> set[tuple[str, int]]:
    """State that counts in floating point: whole in all states, and not the same.

    Nothing rounds it, and a step may ask it for a remainder, or draw by it.
    """
    return {
        key
        for key, first in states[0].items()
        if is_floating(first.dtype)
        and all(np.array_equal(state[key], np.rint(state[key])) for state in states)
        and any(not np.array_equal(state[key], first) for state in states)
    }


def multiply(array: Any, factor: float) -> Any:
    """Numbers that are some times as large; counts as they are."""
    if not is_floating(array.dtype):
        return array
    return (array.astype(np.float64) * factor).astype(array.dtype)


def perturb(array: Any, rng: np.random.Generator, narrow: str | None) -> Any:
    """Move every floating-point element by one rounding, up or down.

    Args:
        array: A variable's value.
        rng: Chooses the way.
        narrow: A dtype with fewer digits whose rounding is taken instead.
    """
    if not is_floating(array.dtype):
        return array
    digits = count_digits(array.dtype.name)
    if narrow is not None:
        digits = min(digits, count_digits(narrow))
    signs = rng.choice([-0.5, 0.5], size=array.shape)
    moved = array.astype(np.float64) * (1 + signs * 2.0 ** (1 - digits))
    return moved.astype(array.dtype)
