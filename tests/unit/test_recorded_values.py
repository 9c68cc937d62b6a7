"""Recorded values of a task are told apart by their numbers."""

from __future__ import annotations

import numpy as np

from distbench.trace import SparseRows
from distbench.worker.state.values import have_same_bits


def make_rows(*rows: tuple[int, float]) -> SparseRows:
    return SparseRows(
        indices=np.array([row for row, _ in rows], np.int64),
        values=np.array([[number] for _, number in rows], np.float32),
        shape=(3, 1),
    )


def test_rows_that_are_nan_are_equal_to_themselves() -> None:
    assert have_same_bits(make_rows((1, np.nan)), make_rows((1, np.nan)))
    assert not have_same_bits(make_rows((1, np.nan)), make_rows((2, np.nan)))


def test_rows_are_compared_by_their_sums_and_with_what_is_dense() -> None:
    rows = make_rows((1, 2.0), (1, 3.0))
    assert have_same_bits(rows, make_rows((1, 5.0)))
    assert have_same_bits(rows, np.array([[0], [5], [0]], np.float32))
    assert not have_same_bits(rows, make_rows((1, 4.0)))
