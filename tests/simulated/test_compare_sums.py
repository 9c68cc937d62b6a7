"""A sum over the replicas passes in any order, and one that lacks a part fails."""

from __future__ import annotations

import numpy as np
import pytest
from gradient_values import add_up, add_values, scale, to_array
from planted_case import check_passed
from swept import swept
from training_simulator import Fault, observe, reduce_with

from distbench.compare.arrays.addends import Addends, collect_addends
from distbench.compare.arrays.bounds import (
    find_roundoff,
    follow_drift,
    group_alike,
    limit_partial_sums,
    spread_additions,
)
from distbench.compare.arrays.measure import BITWISE, Margin, measure_error
from distbench.compare.pairs.sums import bound_reduction
from distbench.diagnose.judge import judge as judge_run
from distbench.trace import SparseRows
from distbench.trace.dtypes import find_dtype

SIZE = 12


def add_in_turn(addends):
    total = addends[0]
    for one in addends[1:]:
        total = total + one
    return total


def add_in_pairs(addends):
    while len(addends) > 1:
        addends = addends[::2] + addends[1::2]
    return addends[0]


def draw(kind, replicas, dtype):
    rng = np.random.default_rng(replicas)
    drawn = {
        "noise": lambda: rng.normal(size=(replicas, SIZE)),
        "alike": lambda: 1.3 + 0.02 * rng.normal(size=(replicas, SIZE)),
        "equal": lambda: np.tile(rng.uniform(0.5, 2, SIZE), (replicas, 1)),
        "ones": lambda: np.ones((replicas, SIZE)),
    }
    return drawn[kind]().astype(dtype)


def judge(addends, observed):
    exact = addends.astype(np.float64)
    terms = Addends(totals=tuple(exact))
    margin = bound_reduction(terms, exact.sum(0), find_roundoff(addends.dtype.name))
    return measure_error(observed.astype(np.float64), exact.sum(0), margin)


@pytest.mark.parametrize("add", [add_in_turn, add_in_pairs])
@pytest.mark.parametrize("kind", ["noise", "alike", "equal", "ones"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("replicas", [2, 16, *swept(256)])
def test_a_sum_that_rounds_as_it_goes_passes(replicas, dtype, kind, add):
    addends = draw(kind, replicas, dtype)
    assert not judge(addends, add(addends)).wrong


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("kind", ["noise", "alike", "equal", "ones"])
def test_a_sum_without_one_of_sixteen_fails(kind, dtype):
    addends = draw(kind, 16, dtype)
    assert judge(addends, add_in_turn(addends[1:])).wrong


def test_a_sum_that_stands_still_is_no_matter_of_chance():
    addends = np.ones((2304, SIZE), np.float16)
    observed = add_in_turn(addends).astype(np.float64)
    assert np.all(observed == 2048)
    terms, exact = list(addends.astype(np.float64)), np.full(SIZE, 2304.0)
    partial, u = limit_partial_sums(terms), find_roundoff("float16")
    chance = spread_additions(exact, partial, group_alike(exact), u)
    off = abs(float(np.sum(exact * (observed - exact))))
    assert chance < off < chance + follow_drift(terms, partial, u)(exact)
    assert not judge(addends, add_in_turn(addends)).wrong


def test_addends_that_vary_by_many_units_leave_nothing_on_the_average():
    terms = list(draw("noise", 64, "float32").astype(np.float64))
    partial = limit_partial_sums(terms)
    drift = follow_drift(terms, partial, find_roundoff("float32"))
    assert drift(np.ones(SIZE)) == 0.0


@pytest.mark.parametrize(("row", "seen"), [(0, False), (1, True)])
def test_a_row_of_many_slices_hides_nothing_of_the_others(row, seen):
    """As that of a padding number: the roundings of bfloat16 allow 256 anything."""
    rng = np.random.default_rng(0)
    rows = np.array([0] * 150 + [1, 2], np.int64)
    parts = tuple(
        SparseRows(
            indices=rows,
            values=rng.normal(size=(152, SIZE)).astype(find_dtype("bfloat16")),
            shape=(3, SIZE),
        )
        for _ in range(2)
    )
    addends = collect_addends(parts, np.arange(3), 1.0)
    expected = addends.add_up()
    margin = bound_reduction(addends, expected, find_roundoff("bfloat16"))
    observed = expected.copy()
    observed[row, 0] *= 1.2
    found = measure_error(observed, expected, Margin(bound=margin.bound))
    assert found.wrong == seen
    assert not measure_error(expected, expected, margin).wrong


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_what_does_not_round_is_bitwise(dtype):
    replicas = 1 if dtype == "float32" else 3
    terms = Addends(totals=(np.ones(3),) * replicas)
    expected = np.full(3, float(replicas))
    assert bound_reduction(terms, expected, find_roundoff(dtype)) is BITWISE


def average_then_sum(locals_, step):
    """Every replica takes the mean, and the optimizer adds up N of these."""
    count = len(locals_)
    share = np.float32(1) / np.float32(count)
    means = {k: to_array(v) * share for k, v in add_up(locals_).items()}
    return [{k: add_in_turn([v] * count) for k, v in means.items()}] * count


@pytest.mark.parametrize("replicas", [3, *swept(5, 6, 7)])
def test_an_average_that_is_summed_again_is_the_sum(replicas):
    fault = Fault(reduce=average_then_sum)
    check_passed(judge_run(observe(fault, replicas=replicas, sparse=False, steps=3)))


@pytest.mark.parametrize("replicas", [3, *swept(4)])
def test_a_sum_is_no_farther_off_than_an_average_of_it_rounds(replicas):
    def change(value):
        return scale(add_values(value), 1 + 1e-5)

    fault = Fault(reduce=reduce_with(change))
    found = judge_run(observe(fault, replicas=replicas, sparse=False)).findings
    assert [f.code for f in found] == ["scale-error"]
