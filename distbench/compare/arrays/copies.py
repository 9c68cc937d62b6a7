"""Whether values are the same: as copies, in their numbers, or in their rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from distbench.trace import SparseRows, Value
from distbench.trace.numbers import Array, are_equal, densify
from distbench.trace.shelf import LARGE_BYTES


def are_copies(left: Sequence[Value], right: Sequence[Value]) -> bool:
    """Whether values have the same bits; large ones have if they are one object."""
    return all(map(_is_copy, left, right))


def _is_copy(left: Value, right: Value) -> bool:
    if left is right:
        return True
    if isinstance(left, SparseRows) or isinstance(right, SparseRows):
        return False
    return (
        left.nbytes == right.nbytes < LARGE_BYTES
        and (left.dtype, left.shape) == (right.dtype, right.shape)
        and left.tobytes() == right.tobytes()
    )


def are_same(left: Value, right: Value) -> bool:
    """Whether two values, sparse or dense, hold the same numbers."""
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return are_equal(left, right)
    return are_equal(densify(left), densify(right))


def are_recorded_alike(left: Value, right: Value) -> bool:
    """Whether two values hold the same numbers, and slices in the same order too.

    In another order they may add up to other bits.
    """
    if isinstance(left, SparseRows) and isinstance(right, SparseRows):
        return bool(np.array_equal(left.indices, right.indices)) and are_equal(
            left.values, right.values
        )
    return are_same(left, right)


def have_equal_rows(rows: npt.NDArray[np.int64] | None, others: Array | None) -> bool:
    """Whether both are dense, or have the same rows in the same order."""
    if rows is None or others is None:
        return rows is None and others is None
    return bool(np.array_equal(rows, others))


def have_same_rows(left: Value, right: Value) -> bool:
    """Whether both are dense, or hold slices of the same rows, as many of each."""
    if isinstance(left, SparseRows) and isinstance(right, SparseRows):
        return bool(np.array_equal(np.sort(left.indices), np.sort(right.indices)))
    return not isinstance(left, SparseRows) and not isinstance(right, SparseRows)
