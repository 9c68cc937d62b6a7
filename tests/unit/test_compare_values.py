"""Values are brought into one form without losing what they say."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from evidence_changes import change_evidence
from gradient_values import to_array
from training_simulator import KERNEL, TABLE, Fault, observe, reduce_with

from distbench.compare.arrays.aligned import align_pair, align_values
from distbench.compare.arrays.bounds import find_roundoff
from distbench.compare.arrays.measure import BITWISE, Margin, is_wrong
from distbench.compare.arrays.pair import Pair
from distbench.compare.comparison import compare_evidence, judge_pair
from distbench.compare.state.measured_noise import measure_noise
from distbench.compare.vacuity import find_weak_phases
from distbench.diagnose.judge import judge
from distbench.trace import WHOLE, SparseRows, Trace, TraceKey, VariableInfo
from distbench.trace.numbers import (
    are_equal,
    measure_norm,
    measure_size,
    name_value,
    round_to,
)
from distbench.verdict import Status

ROWS = SparseRows(
    indices=np.array([4, 1, 4], np.int64),
    values=np.array([[1.0, 2.0], [3.0, 4.0], [-5.0, 6.0]], np.float32),
    shape=(1000, 2),
)


def test_sparse_values_are_added_up_row_by_row():
    (aligned,) = align_values([ROWS])
    assert aligned.rows.tolist() == [1, 4]
    assert aligned.total.tolist() == [[3.0, 4.0], [-4.0, 8.0]]
    assert aligned.magnitude.tolist() == [[3.0, 4.0], [6.0, 8.0]]
    assert aligned.counts.tolist() == [1, 2]


@pytest.mark.parametrize("row", [-1, 3, 5])
def test_rows_that_a_variable_does_not_have_count_for_nothing(row):
    value = SparseRows(
        indices=np.array([0, row]), values=np.ones((2, 2), np.float32), shape=(3, 2)
    )
    assert value.to_dense().tolist() == [[1, 1], [0, 0], [0, 0]]
    assert value.count_rows().tolist() == [1, 0, 0]
    assert value.merge().indices.tolist() == [0]
    (aligned,) = align_values([value])
    assert aligned.total.tolist() == [[1, 1]]


@pytest.mark.parametrize(
    ("as_they_come", "rows"), [(False, [1, 4]), (True, [4, 1])], ids=["sorted", "first"]
)
def test_each_row_is_once_in_a_merged_value(as_they_come, rows):
    assert ROWS.repeats_rows
    merged = ROWS.merge(as_they_come=as_they_come)
    assert merged.indices.tolist() == rows
    assert not merged.repeats_rows
    assert np.array_equal(merged.to_dense(), ROWS.to_dense())


def test_sparse_values_share_their_rows():
    other = SparseRows(
        indices=np.array([7], np.int64),
        values=np.ones((1, 2), np.float32),
        shape=(1000, 2),
    )
    left, right = align_values([ROWS, other])
    assert left.rows.tolist() == right.rows.tolist() == [1, 4, 7]
    assert right.total[0].tolist() == [0.0, 0.0]


def test_a_dense_value_makes_all_dense():
    dense, sparse = align_values([ROWS.to_dense(), ROWS])
    assert are_equal(dense.total, sparse.total)
    assert sparse.total.shape == (1000, 2)


def test_rows_that_did_not_overflow_have_a_bound():
    """The others are Inf and NaN on one device too, and say nothing of these."""
    evidence = observe(Fault())
    key = next(
        key
        for key, _ in evidence.reference.select(
            step=1, phase="local_gradient", variable=TABLE, replica=WHOLE
        )
    )

    def overflow(trace):
        value = trace.values[key]
        spoilt = value.values.copy()
        spoilt[0], spoilt[1] = np.inf, np.nan
        values = {**trace.values, key: replace(value, values=spoilt)}
        return replace(trace, values=values)

    spoilt = replace(
        evidence,
        reference=overflow(evidence.reference),
        twins=tuple(overflow(twin) for twin in evidence.twins),
    )
    margin = measure_noise(spoilt).find_margin(key, np.array([[1.0], [np.nan]]))
    assert 0 < margin.widest < 1e-4


def test_a_factor_of_all_elements_is_seen_where_no_element_is_far_enough_off():
    """Of state it is not asked for: what stays as it was has the ratio 1 as well."""
    evidence = observe(replicas=4)
    noise = measure_noise(evidence)
    found = {
        phase: next(evidence.reference.select(step=0, phase=phase, variable=KERNEL))
        for phase in ("local_gradient", "reduced_gradient", "variable")
    }
    for phase, (key, value) in found.items():
        expected = to_array(value).astype(np.float64)
        margin = noise.find_margin(key, expected)
        factor = 1 + 0.9 * margin.widest / measure_size(expected)
        is_seen = phase != "variable"
        assert is_wrong(factor * expected, expected, margin) == is_seen, phase
        margin = replace(margin, ratio=np.inf)
        assert not is_wrong(factor * expected, expected, margin), phase


@pytest.mark.parametrize(
    ("numbers", "size"),
    [([-0.0], "0.0"), ([], "0.0"), ([-2, 1], "2.0"), ([np.nan, 1], "nan")],
)
def test_a_size_is_never_below_0(numbers, size):
    """Not even as a 0 with a sign, which messages would show."""
    assert str(measure_size(np.array(numbers, float))) == size


def test_the_order_of_the_rows_says_nothing():
    turned = replace(ROWS, indices=ROWS.indices[::-1], values=ROWS.values[::-1])
    left, right = align_values([ROWS, turned])
    assert are_equal(left.total, right.total)


@pytest.mark.parametrize(
    ("value", "rounded"),
    [
        (1 + 2.0**-8, 1.0),
        (1 + 3 * 2.0**-8, 1 + 2.0**-6),
        (1 + 2.0**-8 + 2.0**-16, 1 + 2.0**-7),
        (-3.14159, -3.140625),
    ],
)
def test_bfloat16_rounds_to_nearest_and_ties_to_even(value, rounded):
    assert round_to(np.array([value]), "bfloat16").tolist() == [rounded]


def test_a_value_has_the_dtype_in_which_it_was_recorded():
    narrow = np.array([1.0, 2.5], ml_dtypes.float8_e4m3fn)
    rows = SparseRows(indices=np.arange(2), values=narrow, shape=(4,))
    assert name_value(narrow) == name_value(rows) == "float8_e4m3fn"
    assert find_roundoff(name_value(narrow)) == 2.0**-4


def test_a_norm_does_not_overflow():
    assert measure_norm(np.array([3e200, 4e200])) == pytest.approx(5e200)
    assert measure_norm(np.array([3e-200, 4e-200])) == pytest.approx(5e-200)
    assert measure_norm(np.array([3e30, 4e30], np.float32)) == pytest.approx(5e30)
    assert measure_norm(np.array([3e-30, 4e-30], np.float32)) == pytest.approx(5e-30)
    assert measure_norm(np.array([1.0, -np.inf])) == np.inf
    assert np.isnan(measure_norm(np.array([1.0, np.nan, np.inf])))
    assert measure_norm(np.zeros(0)) == 0


def densify_rows(values):
    total = to_array(values[0])
    for value in values[1:]:
        total = total + to_array(value)
    return total


def test_a_dense_sum_of_sparse_gradients_is_right():
    judgement = judge(observe(Fault(reduce=reduce_with(densify_rows))))
    assert judgement.status is Status.PASS, judgement


def test_rows_added_up_before_the_update_are_right():
    def unite(values):
        rows = np.unique(np.concatenate([v.indices for v in values]))
        return SparseRows(
            indices=rows, values=densify_rows(values)[rows], shape=values[0].shape
        )

    def reduce(locals_, step):
        total = {
            path: unite([g[path] for g in locals_])
            if path == TABLE
            else densify_rows([g[path] for g in locals_])
            for path in locals_[0]
        }
        return [total for _ in locals_]

    judgement = judge(observe(Fault(reduce=reduce), replicas=3))
    assert judgement.status is Status.PASS, judgement


def test_every_phase_is_held_against_both_relations():
    evidence = observe()
    comparisons = [item.comparison for item in compare_evidence(evidence)]
    seen = {(c.phase, c.relation) for c in comparisons if c.step >= 0}
    both = ("reduced_gradient", "applied_gradient", "variable", "iterations")
    assert {(phase, "reference") for phase in both} <= seen
    assert {(phase, "follows") for phase in both} <= seen
    assert {("loss", "reference"), ("local_gradient", "reference")} <= seen
    assert ("variable", "replicas") in seen
    assert find_weak_phases(evidence, comparisons) == ()


def test_a_comparison_is_effective_only_if_a_lost_example_would_be_seen():
    evidence = observe()
    by_place = {
        (c.phase, c.relation, c.variable): c
        for c in (item.comparison for item in compare_evidence(evidence))
        if c.step == 0 and c.replica == 0
    }
    assert by_place["reduced_gradient", "follows", KERNEL].effective
    assert by_place["variable", "follows", KERNEL].effective
    frozen = by_place["variable", "follows", TABLE]
    assert frozen.effective
    assert not by_place["iterations", "reference", "iterations"].wrong


def test_without_twins_only_equal_bits_are_believed():
    evidence = change_evidence(observe(shards_known=False), twins=(), replays={})
    judgement = judge(evidence)
    assert judgement.status is Status.UNDECIDABLE


@pytest.mark.parametrize(
    ("dtype", "gain", "seen"),
    [("int64", 1, False), ("int64", 16, True), ("float32", 1, True)],
)
def test_no_example_that_is_lost_takes_a_fraction_of_a_whole_number(dtype, gain, seen):
    """A counter of steps stays the same; one of examples does not."""
    evidence = observe()
    assert sum(evidence.reference.get_shards(0)) <= 16
    pair = Pair(
        key=TraceKey(step=0, phase="variable", variable="count", replica=0),
        relation="reference",
        against="one device",
        observed=np.array(gain + 3.0),
        expected=np.array(gain + 3.0),
        base=np.array(3.0),
        margin=BITWISE,
        dtype=dtype,
    )
    assert judge_pair(pair, evidence).comparison.effective == seen


@pytest.mark.parametrize(("error", "seen"), [(0.0, 2.0**-7), (2.0**-10, 0.5)])
def test_where_all_bits_agree_an_error_of_one_unit_would_be_seen(error, seen):
    """However wide noise makes the margin."""
    expected = np.array([1.0, 0.5])
    pair = Pair(
        key=TraceKey(step=0, phase="variable", variable="kernel", replica=0),
        relation="reference",
        against="one device",
        observed=expected + error,
        expected=expected,
        margin=Margin(bound=0.5),
        dtype="bfloat16",
    )
    comparison = judge_pair(pair, observe()).comparison
    assert not comparison.wrong
    assert comparison.resolution == seen


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_large_integers_that_differ_do_so_in_float64(dtype: str) -> None:
    """Bits of a hash or a key were lost before they were compared."""
    base = np.array([7, 2**60, 2**60, 2**60 + 1, 2**62], dtype)
    other = np.array([7, 2**60, 2**60 + 1, 2**60, 2**62 + 2**40], dtype)
    observed, expected = (aligned.total for aligned in align_pair(base, other)[:2])
    assert (observed == expected).tolist() == [True, True, False, False, False]
    assert (observed > expected).tolist() == [False, False, False, True, False]
    assert observed[[0, 1, 4]].tolist() == [7.0, 2.0**60, 2.0**62]
    same, due = (aligned.total for aligned in align_pair(base, base)[:2])
    assert are_equal(same, due)


@pytest.mark.parametrize(
    ("left", "right", "dtype", "gap"),
    [
        ([2**60 + 1, 5], [2**60, 5], "int64", 1),
        ([2**60, 5], [2**60 + 1, 8], "int64", 3),
        ([-(2**63)], [2**63 - 1], "int64", 2**64),
        ([2**64 - 1], [2**64 - 2], "uint64", 1),
        ([7], [7], "int64", 0),
        ([1], [2], "int32", 0),
        ([], [], "int64", 0),
        (-1, 2, "int64", 3),
    ],
)
def test_the_gap_of_large_integers_is_that_of_all_their_bits(
    left: list[int] | int, right: list[int] | int, dtype: str, gap: int
) -> None:
    """Two that were one apart were said to be 256 apart."""
    values = np.array(left, dtype), np.array(right, dtype)
    assert align_pair(*values)[2] == align_pair(*values[::-1])[2] == gap


@pytest.mark.parametrize(("other", "status"), [(0, Status.PASS), (1, Status.FAIL)])
def test_replicas_that_keep_other_large_integers_do_not_agree(other, status) -> None:
    info = VariableInfo(
        path="key", role="variable", shape=(), dtype="int64", trainable=False
    )

    def keep(trace: Trace) -> Trace:
        found = [key for key, _ in trace.select(phase="variable", variable=KERNEL)]
        kept = {
            replace(key, variable="key"): np.array(2**60 + other * (key.replica == 1))
            for key in found
        }
        return replace(
            trace, variables=(*trace.variables, info), values={**trace.values, **kept}
        )

    judgement = judge(observe(replicas=2, tier="exact").change_traces(keep))
    assert judgement.status is status
    errors = {c.error for c in judgement.compared if c.variable == "key"}
    assert errors == {0.0, float(other)}
    assert all(finding.variables == ("key",) for finding in judgement.findings)
