"""A sum that has no room in its dtype is Inf, and is right so."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gradient_values import map_values, to_array
from training_simulator import BIAS, KERNEL, RIGHT, Fault, Setup, Simulation, observe

from distbench.compare.arrays.measure import BITWISE, Margin, measure_error
from distbench.compare.arrays.pair import GLOBAL, Pair
from distbench.compare.comparison import judge_pair
from distbench.compare.nature.factor import Factor
from distbench.compare.pairs.overflow import leave_infinite
from distbench.compare.pairs.reduced import pair_sum
from distbench.diagnose.judge import judge
from distbench.diagnose.readings.notes import tell_where
from distbench.evidence import Evidence
from distbench.trace import WHOLE, Phase, SparseRows, Trace, TraceKey, VariableInfo
from distbench.trace.dtypes import find_dtype
from distbench.trace.values import get_numbers
from distbench.verdict import Status

KEY = TraceKey(step=0, phase="reduced_gradient", variable="w", replica=0)
INF = np.inf


def is_right(seen, terms, factor=1.0, dtype="float16", known=None):
    kind = find_dtype(dtype)
    value = np.array([seen, factor]).astype(kind)
    parts = tuple(np.array([term, 1.0 / len(terms)]).astype(kind) for term in terms)
    pair = pair_sum(KEY, value, parts, Factor(factor), dtype, known, exact=False)
    return not measure_error(pair.observed, pair.expected, pair.margin).wrong


@pytest.mark.parametrize(
    ("seen", "terms", "right"),
    [
        (INF, [4e4, 4e4], True),
        (-INF, [-4e4, -4e4], True),
        (-INF, [4e4, 4e4], False),
        (65504, [4e4, 4e4], False),
        (np.nan, [4e4, 4e4], False),
        (INF, [3e4, 3e4], False),
        # Whether a part of it overflows depends on the order.
        (INF, [4e4, 4e4, -4e4], True),
        (4e4, [4e4, 4e4, -4e4], True),
        (-INF, [4e4, 4e4, -4e4], False),
        (-INF, [6e4, 6e4, 6e4, -4e4, -4e4], True),
        (np.nan, [4e4, 4e4, -4e4, -4e4], True),
        (np.nan, [4e4, 4e4, -4e4], False),
        (INF, [INF, 1.0], True),
        (-INF, [INF, 1.0], False),
    ],
)
def test_a_sum_that_has_no_room_is_infinite(seen, terms, right):
    assert is_right(seen, terms) is right


def test_a_wider_dtype_has_room():
    assert not is_right(INF, [4e4, 4e4], dtype="float32")
    assert is_right(INF, [3e38, 3e38], dtype="float32")


def test_what_is_divided_afterwards_may_have_no_room_before():
    terms = [4e4, 4e4]
    assert is_right(INF, terms, factor=0.5)
    assert is_right(4e4, terms, factor=0.5)
    assert not is_right(INF, [3e4, 3e4], factor=0.5)


@pytest.mark.parametrize(
    ("seen", "slices", "right"),
    [
        (INF, [[5e4, 5e4, -6e4], [1.0]], True),
        (-INF, [[5e4, 5e4, -6e4], [1.0]], False),
        (np.nan, [[5e4, 5e4, -6e4], [1.0]], False),
        (np.nan, [[5e4, 5e4, -6e4], [-6e4]], True),
        (INF, [[5e4, -6e4], [1.0]], False),
    ],
)
def test_each_slice_of_a_row_is_an_addend(seen, slices, right):
    """Only what each replica's slices come to was taken for one."""

    def make(numbers):
        values = np.array(numbers, "float16").reshape(-1, 1)
        return SparseRows(
            indices=np.ones(len(values), np.int64), values=values, shape=(3, 1)
        )

    parts = tuple(map(make, slices))
    pair = pair_sum(KEY, make([seen]), parts, Factor(1.0), "float16", None, exact=False)
    assert measure_error(pair.observed, pair.expected, pair.margin).wrong is not right


def test_where_a_dtype_has_no_infinity_what_has_no_room_is_nan():
    """float8_e4m3fn ends at 448."""
    assert is_right(np.nan, [400, 400], dtype="float8_e4m3fn")
    assert not is_right(np.nan, [100, 100], dtype="float8_e4m3fn")
    assert not is_right(np.nan, [4e4, 4e4], dtype="float8_e5m2")
    assert is_right(INF, [4e4, 4e4], dtype="float8_e5m2")


def observe_larger(factor: float, dtype: str, **setup) -> Evidence:
    """A right run of which all examples are so many times as large."""
    simulation = Simulation(Setup(tier="bounded", dtype=dtype, **setup))
    simulation.batches = [
        (x * x.dtype.type(factor), ids, y * y.dtype.type(factor))
        for x, ids, y in simulation.batches
    ]
    return simulation.observe(RIGHT)


def list_finite(evidence: Evidence, trace: str, phase: Phase) -> set[bool]:
    found = getattr(evidence, trace).select(phase=phase)
    return {bool(np.isfinite(get_numbers(value)).all()) for _, value in found}


def test_gradients_of_which_the_sum_has_no_room_are_no_mistake():
    """It was told that no known cause explains the sum."""
    evidence = observe_larger(40, "float16", replicas=2)
    assert False in list_finite(evidence, "observed", "reduced_gradient")
    assert not judge(evidence).findings


@pytest.mark.parametrize(
    ("dtype", "factor", "seed"),
    [("float16", 10, 3), ("float16", 15, 0), ("float32", 1e18, 0)],
)
def test_a_loss_that_has_room_for_a_shard_alone_is_no_mistake(dtype, factor, seed):
    """Each shard was said to take something of its own examples alone."""
    evidence = observe_larger(
        factor, dtype, seed=seed, replicas=3, shards_known=False, steps=1
    )
    assert list_finite(evidence, "observed", "loss") == {True}
    assert False in list_finite(evidence, "reference", "loss")
    judgement = judge(evidence)
    assert judgement.status is Status.UNDECIDABLE
    assert "a wider dtype" in judgement.message


@pytest.mark.parametrize("seed", [0, 1])
def test_a_gradient_that_has_room_for_shards_alone_is_no_mistake(seed):
    """It was told that no known cause explains what they add up to."""
    evidence = observe_larger(
        200, "float16", seed=seed, replicas=2, shards_known=False, steps=1, sparse=False
    )
    assert list_finite(evidence, "observed", "local_gradient") == {True}
    whole = evidence.reference.select(phase="local_gradient", replica=WHOLE)
    assert not all(np.isfinite(get_numbers(value)).all() for _, value in whole)
    judgement = judge(evidence)
    # All of the loss is infinite as well, and proves nothing.
    assert judgement.status is Status.VACUOUS, judgement.findings
    assert "NaN and Inf" in judgement.message


def test_a_shard_that_overflows_beside_others_that_have_no_room_is_told():
    """Nothing explained it where the batch had no room elsewhere."""
    evidence = observe_larger(
        250, "float16", seed=6, replicas=2, shards_known=False, steps=1, sparse=False
    )
    finding = judge(evidence).findings[0]
    assert (finding.code, finding.phase) == ("nonfinite", "local_gradient")


def pair_sums(phase: Phase, seen, due) -> Pair:
    return Pair(
        key=replace(KEY, phase=phase, replica=WHOLE),
        relation="reference",
        against=GLOBAL,
        observed=np.array(seen),
        expected=np.array(due),
        margin=BITWISE,
        dtype="float64",
        repeats=True,
    )


@pytest.mark.parametrize(
    ("phase", "seen", "due", "wrong"),
    [
        ("local_gradient", [1.0, 2.0], [INF, 2.0], False),
        ("local_gradient", [1.0, 2.5], [INF, 2.0], True),
        ("local_gradient", [1.0, 2.0], [np.nan, 2.0], True),
        ("local_gradient", [INF, 2.0], [1.0, 2.0], True),
        ("reduced_gradient", [1.0, 2.0], [INF, 2.0], True),
        ("variable", [1.0], [1.0, INF], True),
    ],
)
def test_only_what_is_infinite_of_a_sum_is_no_measure(phase, seen, due, wrong):
    evidence = observe(replicas=2)
    pair = leave_infinite(pair_sums(phase, seen, due), evidence.reference)
    assert judge_pair(pair, evidence).comparison.wrong is wrong


def test_what_is_no_measure_proves_nothing():
    evidence = observe(replicas=2)
    for due, effective in (([INF, INF], False), ([INF, 2.0], True)):
        pair = pair_sums("local_gradient", [1.0, 2.0], due)
        left = leave_infinite(pair, evidence.reference)
        assert judge_pair(left, evidence).comparison.effective is effective


@pytest.mark.parametrize("more", [0.0, 1e-9])
def test_what_is_no_measure_hides_no_other_element(more):
    evidence = observe(replicas=2)
    pair = pair_sums("local_gradient", [9.0, 2.0, 3.0], [INF, 2.0, 3.0 + more])
    left = leave_infinite(replace(pair, margin=Margin(bound=1e-8)), evidence.reference)
    comparison = judge_pair(left, evidence).comparison
    assert not comparison.wrong
    assert comparison.resolution <= 1e-8
    assert comparison.change == 3.0 + more


@pytest.mark.parametrize("odd", [9.0, np.nan])
def test_what_is_no_measure_has_no_part_in_a_ratio(odd):
    evidence = observe(replicas=2)
    pair = pair_sums("local_gradient", [odd, 4.0, 6.0], [INF, 2.0, 3.0])
    left = leave_infinite(pair, evidence.reference)
    comparison = judge_pair(left, evidence).comparison
    assert (comparison.wrong, comparison.ratio) == (True, 2.0)


@pytest.mark.parametrize("overflows", [False, True])
def test_a_number_is_no_measure_where_replicas_overflow_as_they_may(overflows):
    evidence = observe(replicas=2)
    pair = pair_sums("local_gradient", [INF, 2.0], [1.0, 2.0])
    left = leave_infinite(pair, evidence.reference, overflows=overflows)
    assert judge_pair(left, evidence).comparison.wrong is not overflows


def test_infinities_may_cancel_in_another_order():
    """One device had -Inf where a replica's Inf met another's -Inf."""
    judgement = judge(observe_larger(1e12, "float32", replicas=2, shards_known=False))
    assert judgement.status is Status.PASS, judgement.findings
    assert "not finite from step 1 on" in judgement.message


@pytest.mark.parametrize("is_own", [True, False])
def test_it_is_told_where_what_is_not_finite_comes_from(is_own):
    reference = observe(replicas=2).reference
    phases = ("variable", "local_gradient") if is_own else ("variable",)
    spoilt = {
        key: to_array(value) * np.nan if key.phase in phases else value
        for key, value in reference.values.items()
    }
    told = tell_where(replace(reference, values=spoilt), 1, KERNEL)
    assert ("in the data" in told) is is_own
    assert ("its gradient is finite" in told) is not is_own


def test_another_gradient_that_a_rule_spreads_is_named():
    reference = observe(replicas=2).reference
    values = dict(reference.values)
    for key, value in reference.values.items():
        if (key.phase, key.variable) == ("local_gradient", BIAS):
            values[key] = to_array(value) * np.nan
    told = tell_where(replace(reference, values=values), 1, KERNEL)
    assert told.startswith(f"the gradient of '{BIAS}' is not finite there")
    assert "in the data" in told


@pytest.mark.parametrize("odd", [np.inf, np.nan])
def test_what_is_not_finite_on_the_cluster_alone_is_wrong(odd):
    def spoil(gradients, replica, step):
        return {path: map_values(v, lambda x: x * odd) for path, v in gradients.items()}

    evidence = observe(Fault(local=spoil), replicas=2, shards_known=False)
    assert judge(evidence).findings[0].code == "nonfinite"


@pytest.mark.parametrize("odd", [np.nan, np.inf])
def test_what_is_infinite_from_the_start_on_is_meant(odd):
    """A mask of -Inf that becomes NaN on the cluster."""

    def mask(trace: Trace) -> Trace:
        info = VariableInfo(
            path="mask", role="variable", shape=(2,), dtype="float32", trainable=False
        )
        held = {
            replace(key, variable="mask"): np.array(
                [0.0, -np.inf if key.replica == WHOLE or key.step < 0 else odd],
                np.float32,
            )
            for key, _ in trace.select(phase="variable", variable=KERNEL)
        }
        return replace(
            trace, variables=(*trace.variables, info), values={**trace.values, **held}
        )

    (finding,) = judge(observe(replicas=2).change_traces(mask)).findings
    assert (finding.phase, finding.variables) == ("variable", ("mask",))
