"""By which rule some examples follow from others, where they do by a simple one.

Numbers that are drawn follow from nothing. A mean and a deviation that were taken of a
shard make a linear function of each column, with two unknowns, and a vocabulary makes a
function of each number or row: whatever fits more examples than it has unknowns is no
chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from distbench.compare.arrays.bounds import find_roundoff
from distbench.trace.dtypes import has_bytes, name_dtype

Law = Literal["same", "linear", "renamed", "constant", "none"]
"""How an array follows from another one: it is the same up to rounding, a linear
function of each column, a function of each value or row, one value for all in either,
or nothing of this kind."""

_DISTINCT = 4
"""Values that a linear function must fit: two more than it has unknowns."""
_REPEATS = 8
"""Times that a value must come again, and be made the same of as before: that two
replicas draw one of two values so, by chance, comes once in 65,000."""
_MORE_REPEATS = 12
"""The same where one of many columns is looked for."""
_BESIDE = 64
"""Columns of an array that may lead another one: a label has few."""
_ROUNDINGS = 256
"""In so many units of rounding of the largest number a function may be off: means and
variances of columns lose some digits."""
_COMPUTED = find_roundoff("float32")
"""That of the dtype in which narrower numbers are made before they are rounded: of
those a mean loses no digits."""


def find_law(
    due: npt.NDArray[Any],
    seen: npt.NDArray[Any],
    beside: Sequence[npt.NDArray[Any]] = (),
) -> Law:
    """By which rule an array follows from another one.

    Args:
        due: Numbers or text [examples, columns].
        seen: What became of them: as many, of the same dtype.
        beside: Other arrays of the same examples, one column of which may lead it as
            well: classes of one weight may have several in another shard.
    """
    unit = _find_unit(due.dtype)
    due, seen, *beside = map(_make_plain, (due, seen, *beside))
    if _are_same(due, seen, unit):
        return "same"
    if len(np.unique(due)) == 1 and len(np.unique(seen)) == 1:
        return "constant"
    if _is_linear(due, seen, unit):
        return "linear"
    if _is_renamed(due.ravel(), seen.ravel()):
        return "renamed"
    rows, changed = _number_rows(due, seen)
    columns = [column for array in beside for column in array.T[:_BESIDE]]
    if any(_is_renamed(rows, changed, column) for column in (None, *columns)):
        return "renamed"
    return "none"


def find_factor(due: npt.NDArray[Any], seen: npt.NDArray[Any]) -> float | None:
    """What all numbers of an array are multiplied by, if that is all."""
    unit = _find_unit(due.dtype)
    due, seen = map(_make_plain, (due, seen))
    if not _are_numbers(due, seen):
        return None
    x, z = due.astype(np.float64), seen.astype(np.float64)
    if not (squares := np.vdot(x, x)):
        return None
    factor = float(np.vdot(x, z) / squares)
    off = np.abs(z - factor * x).max(initial=0.0)
    return factor if off <= _allow(z, factor * x, unit).max(initial=0) else None


def _find_unit(dtype: np.dtype[Any]) -> float:
    """Share of the largest number that rounding may part two by; 0 of other dtypes."""
    own = find_roundoff(name_dtype(dtype))
    rounded = own if own > _COMPUTED else 0.0
    return 2 * (_ROUNDINGS * min(own, _COMPUTED) + rounded)


def _make_plain(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The same numbers in a dtype that NumPy can sort and compare."""
    return array if has_bytes(array.dtype) else array.astype(np.float32)


def _are_numbers(*arrays: npt.NDArray[Any]) -> bool:
    return all(array.dtype.kind in "biuf" for array in arrays)


def _are_same(due: npt.NDArray[Any], seen: npt.NDArray[Any], unit: float) -> bool:
    if due.dtype.kind != "f" or seen.dtype.kind != "f":
        return bool(np.array_equal(due, seen))
    x, z = due.astype(np.float64), seen.astype(np.float64)
    # What is missing, or is not finite, is so in both.
    odd = ~(np.isfinite(x) & np.isfinite(z))
    if not np.array_equal(x[odd], z[odd], equal_nan=True):
        return False
    x, z = np.where(odd, 0.0, x), np.where(odd, 0.0, z)
    return bool((np.abs(z - x) <= _allow(x, z, unit)).all())


def _allow(
    x: npt.NDArray[np.float64], z: npt.NDArray[np.float64], unit: float
) -> npt.NDArray[np.float64]:
    """By how much rounding may part two columns: [columns]."""
    size = np.maximum(np.abs(x).max(axis=0), np.abs(z).max(axis=0))
    return np.asarray(unit * size)


def _is_linear(due: npt.NDArray[Any], seen: npt.NDArray[Any], unit: float) -> bool:
    """Whether each column is a linear function of the same one, and some tell so.

    Whole numbers tell nothing: a number of an example in its shard is a linear function
    of that in the data set.
    """
    if not _are_numbers(due, seen):
        return False
    x, z = due.astype(np.float64), seen.astype(np.float64)
    if not (np.isfinite(x).all() and np.isfinite(z).all()):
        return False
    apart, moved = x - x.mean(axis=0), z - z.mean(axis=0)
    squares = (apart**2).sum(axis=0)
    slopes = (apart * moved).sum(axis=0) / np.where(squares, squares, 1)
    bound = _allow(apart * slopes, z, unit) + abs(slopes) * _allow(x, x, unit)
    fits = np.abs(moved - slopes * apart) <= bound
    if not fits.all():
        return False
    tells = (x != np.round(x)).any(axis=0) | (z != np.round(z)).any(axis=0)
    many = 1 + (np.diff(np.sort(x, axis=0), axis=0) > 0).sum(axis=0) >= _DISTINCT
    return bool((tells & many & (np.abs(z - x) > _allow(x, z, unit)).any(0)).any())


def _is_renamed(
    due: npt.NDArray[Any],
    seen: npt.NDArray[Any],
    beside: npt.NDArray[Any] | None = None,
) -> bool:
    """Whether each value becomes one and the same other one, and many come again.

    Args:
        due: Values [values].
        seen: What became of them: as many.
        beside: Values that lead it as well.
    """
    kinds, numbers = np.unique(due, return_inverse=True)
    if beside is not None:
        others, led = np.unique(beside, return_inverse=True)
        kinds, numbers = np.unique(numbers * len(others) + led, return_inverse=True)
    pairs = {*zip(numbers.tolist(), seen.tolist(), strict=True)}
    again = len(due) - len(kinds)
    least = _REPEATS if beside is None else _MORE_REPEATS
    if len(pairs) > len(kinds) or len(kinds) < 2 or again < least:
        return False
    counts = np.bincount(numbers)[numbers]
    return bool(((due != seen) & (counts > 1)).any())


def _number_rows(
    due: npt.NDArray[Any], seen: npt.NDArray[Any]
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Rows by a number that equal ones have in either array: [examples] each."""
    both = np.concatenate((due, seen))
    numbers = np.unique(both, axis=0, return_inverse=True)[1].ravel()
    return numbers[: len(due)], numbers[len(due) :]
