"""Brings recorded values into one form: float64 arrays over the same rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt

from distbench.trace import SparseRows, Value
from distbench.trace.numbers import Array, densify, measure_distance

Number = int | npt.NDArray[np.int64]
"""How many there are of something, for all elements or for each row."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Aligned:
    """A value in float64, repeated rows added up.

    Attributes:
        total: The value; of sparse ones only the rows that any of them touches.
        slices: Σ|x| of the slices that were added up for each element; None for a
            dense value.
        counts: How many slices were added up for each row; None for a dense value.
        rows: Row numbers of `total`; None where all rows are there.
    """

    total: Array
    slices: Array | None = None
    counts: npt.NDArray[np.int64] | None = None
    rows: npt.NDArray[np.int64] | None = None

    @property
    def magnitude(self) -> Array:
        """Σ|x| of what was added up for each element."""
        return np.abs(self.total) if self.slices is None else self.slices

    @property
    def number(self) -> Number:
        """How many slices were added up for each element; 1 for a dense value.

        One for each row, in a shape that goes with that of `total`.
        """
        if self.counts is None:
            return 1
        return self.counts.reshape(-1, *(1,) * (self.total.ndim - 1))

    @property
    def places(self) -> Array | None:
        """Row numbers, as numbers that a pair can hold."""
        return None if self.rows is None else self.rows.astype(np.float64)


def align_values(values: Sequence[Value]) -> tuple[Aligned, ...]:
    """Bring values of one variable into the same form.

    Sparse values are added up row by row over the rows that any of them touches; a
    dense one among them makes all of them dense.
    """
    rows = join_rows(values)
    made = {id(value): value for value in values}
    aligned = {name: align_value(value, rows) for name, value in made.items()}
    return tuple([aligned[id(value)] for value in values])


def measure_apart(value: Value, other: Value) -> float:
    """Largest absolute difference of two values, of the rows that either touches."""
    return measure_distance(*(found.total for found in align_values((value, other))))


def align_pair(value: Value, expected: Value) -> tuple[Aligned, Aligned, float]:
    """Bring two values into the same form, in which what differs still does.

    Of large integers, as hashes and the state of a generator are, several are one
    number in float64. The first value then has the next one on its side.

    Returns:
        Both, and the largest difference of integers of one dtype that float64 may have
        no room for; 0 for values of another kind, and where none is.
    """
    seen, due = align_values((value, expected))
    if not (_is_long(value) and _is_long(expected)) or value.shape != expected.shape:
        return seen, due, 0.0
    lost = (value != expected) & (seen.total == due.total)
    if np.any(lost):
        side = np.where(np.asarray(value > expected), math.inf, -math.inf)
        total = np.where(lost, np.nextafter(seen.total, side), seen.total)
        seen = replace(seen, total=total)
    gap = 0.0 if value.dtype != expected.dtype else _measure_gap(value, expected)
    return seen, due, gap


def _measure_gap(
    value: npt.NDArray[np.integer[Any]], expected: npt.NDArray[np.integer[Any]]
) -> float:
    """Largest difference of integers of 64 bits, which float64 may have no room for."""
    pair = np.atleast_1d(value), np.atleast_1d(expected)
    most, least = np.maximum(*pair), np.minimum(*pair)
    # Of any two of them it has room in as many bits without a sign.
    return float(np.max(most.view(np.uint64) - least.view(np.uint64), initial=0))


def _is_long(value: Value) -> TypeGuard[npt.NDArray[np.integer[Any]]]:
    """Whether it is of integers that float64 may have no room for."""
    return not isinstance(value, SparseRows) and value.dtype in (np.int64, np.uint64)


def join_rows(values: Sequence[Value]) -> npt.NDArray[np.int64] | None:
    """The rows in which values are brought into the same form; None for all of them."""
    sparse = [value for value in values if isinstance(value, SparseRows)]
    if not sparse:
        return None
    size = sparse[0].shape[0]
    if len(sparse) < len(values):
        return np.arange(size, dtype=np.int64)
    rows = np.unique(np.concatenate([value.indices for value in sparse]))
    return rows[(rows >= 0) & (rows < size)]


def align_value(value: Value, rows: npt.NDArray[np.int64] | None) -> Aligned:
    """Bring a value into the form that `join_rows` gives."""
    if rows is not None and isinstance(value, SparseRows):
        return _align_sparse(value, rows)
    return Aligned(total=densify(value), rows=rows)


def _align_sparse(value: SparseRows, rows: npt.NDArray[np.int64]) -> Aligned:
    slices = np.asarray(value.values, dtype=np.float64)
    shape = (len(rows), *slices.shape[1:])
    total, magnitude = np.zeros(shape), np.zeros(shape)
    indices = value.indices
    inside = (indices >= 0) & (indices < value.shape[0])
    if not inside.all():  # TensorFlow drops such rows on some devices; so does this
        indices, slices = indices[inside], slices[inside]
    places = np.searchsorted(rows, indices)
    np.add.at(total, places, slices)
    np.add.at(magnitude, places, np.abs(slices))
    counts = np.bincount(places, minlength=len(rows)).astype(np.int64)
    return Aligned(total=total, slices=magnitude, counts=counts, rows=rows)
