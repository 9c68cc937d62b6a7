"""One wrong value: its rows in other values, and what rounding may do to it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from distbench.compare.arrays.aligned import align_values
from distbench.compare.arrays.bounds import find_roundoff
from distbench.compare.arrays.pair import Pair
from distbench.trace import SparseRows, Value
from distbench.trace.numbers import Array, are_equal, densify, measure_size


def find_base(case: Pair) -> Array:
    """The state before the step, 0 where it is not known, in the shape of the case."""
    return np.array(np.broadcast_to(np.asarray(case.base), case.expected.shape))


def is_still(case: Pair) -> bool:
    """Whether state stays bit for bit as it was, where one device changes it."""
    return are_equal(case.observed, find_base(case)) and not is_left(case)


def is_left(case: Pair) -> bool:
    """Whether one device leaves state bit for bit as it was."""
    return are_equal(case.expected, find_base(case))


def take_rows(value: Value, case: Pair) -> Array:
    """A value in the rows of a case: all, or those that the case consists of."""
    if case.rows is None:
        return densify(value)
    rows = case.rows.astype(np.int64)
    if not isinstance(value, SparseRows):
        return densify(value)[rows]
    empty = SparseRows(
        indices=rows,
        values=np.zeros((len(rows), *value.shape[1:]), np.float64),
        shape=value.shape,
    )
    aligned, _ = align_values((value, empty))
    if aligned.rows is None:
        return aligned.total
    return aligned.total[np.searchsorted(aligned.rows, rows)]


def carry_rows(
    value: Array, rows: Array | None, others: Array | None, shape: tuple[int, ...]
) -> Array:
    """What is known of some rows, in those of another step; 0 where it has others.

    Args:
        value: In the first rows.
        rows: Their numbers; None for all of them.
        others: Those of the other step.
        shape: Shape of a value in these.
    """
    if rows is None and others is None:
        return value
    before = np.arange(len(value)) if rows is None else rows
    now = np.arange(shape[0]) if others is None else others
    carried = np.zeros(shape)
    _, place, other = np.intersect1d(before, now, return_indices=True)
    carried[other] = value[place]
    return carried


def find_tolerance(case: Pair, replicas: int) -> Array | float:
    """How far a prediction from rounded numbers may lie from the observed value.

    Only ranks causes; what is wrong has been decided before. A prediction is made of a
    handful of rounded operations on each addend: a few units in the last place of the
    largest one for each replica, beside what a correct value may deviate.
    """
    bound = np.where(np.isfinite(case.margin.bound), case.margin.bound, 0.0)
    return np.asarray(4 * bound + find_rounding(case, case.terms, replicas))


def find_rounding(
    case: Pair, terms: Sequence[Array], replicas: int | None = None
) -> float:
    """How far rounding of a value and of its addends may move it: a few roundoffs.

    Args:
        case: The value.
        terms: Its addends.
        replicas: How many there may be, if not as many as are given.
    """
    sizes = [measure_size(case.observed), measure_size(case.expected)]
    sizes.append(sum(measure_size(term) for term in terms))
    count = len(terms) if replicas is None else replicas
    return 8 * (count + 1) * find_roundoff(case.dtype) * max(sizes)
