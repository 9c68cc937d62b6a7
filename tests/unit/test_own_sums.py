"""Sums of the replicas' own gradients, as one device is fed with them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from distbench.trace import SparseRows, Trace, TraceKey
from distbench.worker.one_device.sums import (
    Sum,
    add_gradients,
    join_rows,
    list_narrow_sums,
    mix_sums,
)

EVERYONE = Sum(kept=(0, 1))
KEY = TraceKey(step=0, phase="local_gradient", variable="table", replica=0)


def make_trace(phase: str, *values: np.ndarray | SparseRows) -> Trace:
    """A step with one variable; values are by replica."""
    keys = {
        TraceKey(step=0, phase=phase, variable="table", replica=replica): value
        for replica, value in enumerate(values)
    }
    shards = (2,) * len(values)
    return Trace(
        name="own", replicas=len(values), shards=shards, variables=(), values=keys
    )


def make_left(handed: np.ndarray, variable: np.ndarray) -> Trace:
    """What one replica has after a step."""
    trace = make_trace("reduced_gradient", handed)
    values = {**trace.values, replace(KEY, phase="variable"): variable}
    return replace(trace, values=values)


def make_rows(*indices: int) -> SparseRows:
    values = np.ones((len(indices), 2), np.float32)
    return SparseRows(indices=np.array(indices), values=values, shape=(3, 2))


@pytest.mark.parametrize("row", [-1, 3, 5])
def test_rows_that_a_variable_does_not_have_are_in_no_sum(row: int) -> None:
    observed = make_trace("local_gradient", make_rows(0, row, 0), make_rows(row, 1))
    summed = add_gradients(observed, EVERYONE)
    (total,) = summed.values.values()
    assert total.indices.tolist() == [0, 1]
    assert total.values.tolist() == [[2, 2], [1, 1]]
    (joined,) = join_rows(observed, summed).values.values()
    assert joined.indices.tolist() == [0, 1]
    assert joined.values.tolist() == [[2, 2], [1, 1]]


@pytest.mark.parametrize(
    "handed",
    [np.ones(6), np.ones(7), np.ones((2, 3))],
    ids=["flat", "packed", "turned"],
)
def test_what_is_handed_in_another_shape_leaves_it_to_the_variable(
    handed: np.ndarray,
) -> None:
    # bfloat16 loses each 1 beside 256, and keeps them where they come first.
    own = make_trace(
        "local_gradient", *np.float32([[[512, 256]] * 3, *[[[0, 1]] * 3] * 2])
    )
    fed = [add_gradients(own, way) for way in list_narrow_sums(3, "bfloat16")]
    sums = [trace.values[KEY] for trace in fed]
    assert not np.array_equal(sums[0], sums[1])
    left = [make_left(handed, -value) for value in sums]
    seen = make_left(handed, -sums[1])
    observed = replace(seen, values={**own.values, **seen.values})
    assert np.array_equal(mix_sums(observed, fed, left).values[KEY], sums[1])


def test_no_gradients_are_zeros_though_some_overflow() -> None:
    """One device is fed with them to see what a step leaves that takes none."""
    values = np.array([np.inf, 1.0], np.float32), np.array([np.nan, 2.0], np.float32)
    assert np.array_equal(Sum(kept=(0, 1), factor=0.0).add_up(values), [0.0, 0.0])
