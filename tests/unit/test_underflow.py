"""What is too small for half precision is lost, and no more than that is allowed."""

from __future__ import annotations

import numpy as np
import pytest

from distbench.compare.arrays.bounds import bound_underflow
from distbench.compare.arrays.measure import measure_error
from distbench.compare.nature.factor import Factor
from distbench.compare.pairs.reduced import pair_sum
from distbench.trace import SparseRows, TraceKey

KEY = TraceKey(step=0, phase="reduced_gradient", variable="w", replica=0)
SMALL = 2.0**-24
HALF = np.float16
ROWS = np.array([0, 1, 1, 2, 2, 2])


def draw(replicas, size):
    rng = np.random.default_rng(replicas)
    return [(rng.normal(size=50) * size).astype(HALF) for _ in range(replicas)]


def add(terms):
    total = terms[0]
    for term in terms[1:]:
        total = (total + term).astype(HALF)
    return total


def hold(value, terms, factor=None):
    factor = factor or Factor(1.0)
    pair = pair_sum(KEY, value, tuple(terms), factor, "float16", None, exact=False)
    return pair, measure_error(pair.observed, pair.expected, pair.margin)


SIZES = [1e-1, 1e-3, 1e-4, 1e-5, 1e-6]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("replicas", [2, 3, 4, 7])
def test_a_mean_that_is_added_up_again_is_the_sum(replicas, size):
    terms = draw(replicas, size)
    mean = (add(terms) * HALF(1 / replicas)).astype(HALF)
    assert not hold(add([mean] * replicas), terms)[1].wrong
    mean = (add(terms) / HALF(replicas)).astype(HALF)
    assert not hold(add([mean] * replicas), terms)[1].wrong


@pytest.mark.parametrize("size", SIZES)
def test_what_is_scaled_before_or_after_it_is_added_is_the_sum(size):
    terms, tenth = draw(3, size), Factor(float(HALF(0.1)), roundings=2)
    scaled = [(term * HALF(0.1)).astype(HALF) for term in terms]
    assert not hold(add(scaled), terms, tenth)[1].wrong
    after = (add(terms) * HALF(0.1)).astype(HALF)
    assert not hold(after, terms, tenth)[1].wrong


@pytest.mark.parametrize("size", [1e-3, 1e-4, 1e-5])
def test_a_replica_that_is_lost_is_seen_all_the_same(size):
    terms = draw(3, size)
    assert hold(add(terms[1:]), terms)[1].wrong


def test_nothing_is_lost_of_what_is_large_enough():
    terms = [np.array([0.5, 2.0**-13], HALF)] * 2
    bound = np.broadcast_to(hold(add(terms), terms)[0].margin.bound, 2)
    assert bound[0] == pytest.approx(2.0**-11, rel=1e-6)
    assert bound[1] == pytest.approx(2.0**-23, rel=1e-6)
    terms = [np.array([2.0**-15, 0.0], HALF)] * 2
    bound = np.broadcast_to(hold(add(terms), terms)[0].margin.bound, 2)
    assert bound[0] == pytest.approx(2.0**-25 + 2 * SMALL / 2, rel=1e-6)
    assert bound[1] == 0


def test_rows_that_are_averaged_slice_by_slice_are_the_sum():
    rng = np.random.default_rng(0)
    slices = [(rng.normal(size=(6, 4)) * 1e-6).astype(HALF) for _ in range(3)]
    parts = [SparseRows(indices=ROWS, values=s, shape=(3, 4)) for s in slices]
    means = np.concatenate([(s / HALF(3)).astype(HALF) for s in slices])
    again = SparseRows(
        indices=np.tile(ROWS, 3 * 3), values=np.tile(means, (3, 1)), shape=(3, 4)
    )
    assert not hold(again, parts)[1].wrong


@pytest.mark.parametrize("dtype", ["int64", "complex64"])
def test_what_does_not_round_loses_nothing(dtype):
    assert not bound_underflow(np.zeros(2), dtype).any()
