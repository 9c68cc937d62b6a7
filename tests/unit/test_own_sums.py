"""Sums of the replicas' own gradients, as one device is fed with them."""

from __future__ import annotations

import numpy as np
import pytest

from distbench.trace import SparseRows, Trace, TraceKey
from distbench.worker.one_device.sums import Sum, add_gradients, join_rows

EVERYONE = Sum(kept=(0, 1))


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
