"""Gradients of a cluster in the form in which one device has them."""

from __future__ import annotations

import numpy as np
import pytest

from distbench.trace import SparseRows, Value
from distbench.trace.numbers import densify
from distbench.worker.one_device.form import move_sums, take_form

ROWS = 5


def make(indices: list[int], numbers: list[float]) -> SparseRows:
    values = np.asarray(numbers, np.float32)[:, np.newaxis]
    return SparseRows(indices=np.asarray(indices), values=values, shape=(ROWS, 1))


def make_dense(*numbers: float) -> Value:
    return np.asarray(numbers, np.float32)[:, np.newaxis]


def take(own: Value, seen: Value, *handed: Value) -> Value:
    formed = take_form(own, seen, handed)
    assert formed is not None
    return formed


def test_what_replicas_share_comes_once_where_one_device_has_it_once() -> None:
    handed = make([3, 1], [1, 2]), make([1, 0], [4, 8])
    seen = make([3, 1, 1, 0], [1, 2, 4, 8])
    formed = take(make([1, 3, 0], [5, 1, 8]), seen, *handed)
    assert isinstance(formed, SparseRows)
    assert formed.indices.tolist() == [1, 3, 0]
    assert formed.values.ravel().tolist() == [6, 1, 8]  # what was seen, not one's own
    assert formed.values.dtype == np.float32


def test_a_dense_sum_comes_in_the_rows_that_were_looked_up() -> None:
    own = make([1, 3, 1], [1, 1, 2])
    handed = make([1, 3], [1, 1]), make([1], [2])
    formed = take(own, make_dense(0, 3, 0, 1, 0), *handed)
    assert isinstance(formed, SparseRows)
    assert formed.indices.tolist() == [1, 3, 1]
    assert formed.values.ravel().tolist() == [1, 1, 2]


def test_rows_come_dense_where_one_device_has_a_dense_gradient() -> None:
    formed = take(make_dense(0, 1, 0, 0, 2), make([4, 1, 4], [1, 1, 1]))
    assert isinstance(formed, np.ndarray)
    assert formed.ravel().tolist() == [0, 1, 0, 0, 2]


@pytest.mark.parametrize(
    ("own", "seen", "handed"),
    [
        # The same rows as often, in another order.
        (make([1, 3, 1], [1, 1, 2]), make([3, 1, 1], [1, 2, 1]), ()),
        (make_dense(1, 2, 0, 0, 0), make_dense(1, 2, 0, 0, 0), ()),
        # Replicas drew others than one device did.
        (make([1, 3], [1, 1]), make([1, 1], [1, 1]), (make([1], [1]), make([1], [1]))),
        (make([1, 3], [1, 1]), make_dense(1, 1, 0, 0, 1), ()),
        # One device has a row twice, and other slices of it than replicas.
        (make([1, 1], [1, 2]), make([1], [9]), (make([1], [9]),)),
        (make([1, 3], [1, np.nan]), make_dense(0, 1, 0, np.nan, 0), ()),
        (make([1, 3], [1, 1]), make([1, 3, ROWS], [1, 1, 1]), ()),
        (make([], []), make_dense(0, 0, 0, 0, 0), ()),
    ],
    ids=[
        "same rows",
        "dense",
        "drawn",
        "row of another",
        "other slices",
        "NaN",
        "row that is none",
        "empty",
    ],
)
def test_a_gradient_is_left_as_it_is(
    own: Value, seen: Value, handed: tuple[Value, ...]
) -> None:
    assert take_form(own, seen, handed) is None


@pytest.mark.parametrize("is_dense", [False, True])
def test_sums_move_by_no_more_than_their_slices_may_round(is_dense: bool) -> None:
    seen = make([1, 1, 3], [1000, -999, 2])
    due = make_dense(0, 1, 0, 2, 0) if is_dense else make([3, 1], [2, 1])
    moved = move_sums(due, seen, np.random.default_rng(0))
    errors = np.abs(densify(moved) - densify(due)).ravel()
    # Of a row with slices that cancel by far more than of one that is but large.
    assert 0 < errors[3] <= 1e-6 < 1e-4 < errors[1] < 1e-3
    assert not np.any(errors[[0, 2, 4]])
