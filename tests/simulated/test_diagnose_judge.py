"""What passes, what fails, and what is called undecidable or vacuous."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from evidence_changes import change_evidence
from gradient_values import add_up, add_values, map_values, scale, to_array
from judged_runs import (
    MEAN,
    UNUSUAL_IDS,
    UNUSUAL_RUNS,
    check_millionth_caught,
    check_no_false_alarm,
    check_unusual_passes,
)
from simulated_rule import Rule
from training_simulator import (
    BIAS,
    KERNEL,
    TABLE,
    TRAINED,
    Fault,
    Setup,
    Simulation,
    observe,
    reduce_with,
)

from distbench.diagnose.judge import judge
from distbench.evidence import Evidence
from distbench.trace import INITIAL, WHOLE, Trace, TraceKey, VariableInfo
from distbench.verdict import Status


def add_ulp(locals_, step):
    total = add_up(locals_)
    kernel = total[KERNEL].copy()
    kernel.flat[3] = np.nextafter(kernel.flat[3], np.float32(np.inf))
    return [{**total, KERNEL: kernel} for _ in locals_]


def change_trace(trace: Trace, keep) -> Trace:
    return replace(trace, values={k: v for k, v in trace.values.items() if keep(k)})


@pytest.mark.first(10)
@pytest.mark.parametrize(("name", "tier"), UNUSUAL_RUNS, ids=UNUSUAL_IDS)
def test_correct_but_unusual_programs_pass(name, tier):
    check_unusual_passes(name, tier)


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        (Fault(), Status.PASS),
        (Fault(reduce=reduce_with(lambda v: scale(add_values(v), 2.0))), Status.FAIL),
    ],
    ids=["right", "twice"],
)
def test_a_step_that_is_not_seen_is_judged_by_what_it_leaves(fault, status):
    evidence = observe(fault)

    def leave(trace: Trace) -> Trace:
        state = ("slot", "variable", "iterations")
        return change_trace(trace, lambda key: key.phase in state)

    evidence = change_evidence(
        evidence,
        observed=leave(evidence.observed),
        reference=leave(evidence.reference),
        twins=tuple(map(leave, evidence.twins)),
        replays={},
        repeated=(),
        compiled=True,
    )
    judgement = judge(evidence)
    assert judgement.status is status
    assert ("jit=False" in judgement.message) == (status is Status.PASS)


@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_a_free_run_passes(replicas):
    judgement = judge(observe(tier="free", replicas=replicas, steps=4))
    assert judgement.status is Status.PASS, judgement


def test_a_free_run_names_the_first_cause_once():
    fault = Fault(reduce=lambda locals_, step: locals_)
    judgement = judge(observe(fault, tier="free", steps=4))
    assert [f.code for f in judgement.findings] == ["missing-reduction"]
    assert judgement.findings[0].step == 0


def scale_up(gradients, replica, step):
    return {path: scale(value, 2.0) for path, value in gradients.items()}


def average(locals_, step):
    total = {
        path: np.mean([to_array(g[path]) for g in locals_], axis=0).astype(value.dtype)
        for path, value in locals_[0].items()
    }
    return [total for _ in locals_]


@pytest.mark.parametrize(
    ("dtype", "right"),
    [("float32", Status.PASS), ("float16", Status.UNDECIDABLE)],
)
def test_a_free_run_blames_no_scale_that_may_be_undone(dtype, right):
    setup = {"tier": "free", "dtype": dtype, "steps": 4, "sparse": False}
    undone = judge(observe(Fault(local=scale_up, reduce=average), **setup))
    assert undone.status is right, undone
    assert judge(observe(Fault(reduce=average), **setup)).status is Status.FAIL


def test_noise_that_hides_a_lost_example_is_undecidable():
    setup = {"tier": "free", "dtype": "float16", "examples": 128, "steps": 2}
    judgement = judge(observe(**setup))
    assert judgement.status is Status.UNDECIDABLE
    assert "noise" in judgement.message


@pytest.mark.parametrize(("path", "replicas"), [(KERNEL, 2), (BIAS, 3)])
def test_a_factor_of_one_millionth_is_caught(path, replicas):
    check_millionth_caught(path, replicas=replicas, steps=1)


def test_the_error_is_that_of_the_step_that_is_named():
    """Later steps are wrong by more, from other weights."""

    def reduce(locals_, step):
        factor = 2.0 * (step + 1)
        total = {path: scale(g, factor) for path, g in add_up(locals_).items()}
        return [total for _ in locals_]

    alone, all_steps = (
        judge(observe(Fault(reduce=reduce), steps=steps)).findings[0]
        for steps in (1, 3)
    )
    assert alone.step == all_steps.step == 0
    assert (alone.error, alone.bound) == (all_steps.error, all_steps.bound)


def test_one_ulp_is_caught_where_sums_are_exact():
    judgement = judge(observe(Fault(reduce=add_ulp), tier="exact"))
    assert judgement.status is Status.FAIL
    first = judgement.findings[0]
    assert (first.phase, first.variable) == ("reduced_gradient", KERNEL)
    assert first.bound == 0


def test_one_ulp_of_the_update_is_caught_where_sums_round():
    def update(new, old, gradients, run):
        return {**new, BIAS: np.nextafter(new[BIAS], np.float32(9))}

    judgement = judge(observe(Fault(update=update)))
    assert judgement.status is Status.FAIL
    assert judgement.findings[0].phase == "variable"
    assert judgement.findings[0].variable == BIAS


def observe_nothing() -> Evidence:
    """No gradient is anything but 0."""
    fault = Fault(local=lambda g, r, step: {k: scale(v, 0.0) for k, v in g.items()})
    simulation = Simulation(Setup(tier="exact"))
    for x, _, y in simulation.batches:
        x[:] = 0
        y[:] = 0
    for path in TRAINED:
        simulation.initial[path][:] = 0
    return simulation.observe(fault)


def test_a_run_without_gradients_is_vacuous():
    judgement = judge(observe_nothing())
    assert judgement.status is Status.VACUOUS
    assert "lost" in judgement.message


@pytest.mark.parametrize("dtype", ["int64", "float32"])
def test_a_counter_proves_nothing_of_gradients(dtype: str):
    info = VariableInfo(
        path="count", role="variable", shape=(), dtype=dtype, trainable=False
    )

    def count(trace: Trace) -> Trace:
        kept = trace.select(phase="variable", variable=KERNEL)
        counted = {
            replace(key, variable="count"): np.array(key.step + 1, dtype)
            for key, _ in kept
        }
        return replace(
            trace,
            variables=(*trace.variables, info),
            values={**trace.values, **counted},
        )

    judgement = judge(observe_nothing().change_traces(count))
    assert judgement.status is Status.VACUOUS
    assert "gradient, variable" in judgement.message
    assert judge(observe(tier="exact").change_traces(count)).status is Status.PASS


def sum_in_half(locals_, step):
    total = {
        path: map_values(value, lambda x: x.astype(np.float16).astype(x.dtype))
        for path, value in add_up(locals_).items()
    }
    return [total for _ in locals_]


@pytest.mark.parametrize(
    ("rate", "status"), [(0.125, Status.PASS), (0.0, Status.VACUOUS)]
)
def test_a_warning_of_one_phase_proves_nothing_of_another(rate, status):
    """No update could have been wrong where the learning rate is 0."""
    judgement = judge(observe(Fault(reduce=sum_in_half), rule=Rule(rate=rate)))
    assert judgement.status is status
    assert "warning: lower-precision" in judgement.message
    (finding,) = judgement.findings
    assert (finding.code, finding.warning) == ("lower-precision", True)


def test_a_run_that_recorded_nothing_is_vacuous():
    evidence = observe()
    empty = replace(
        evidence, observed=change_trace(evidence.observed, lambda key: False)
    )
    judgement = judge(empty)
    assert judgement.status is Status.VACUOUS
    assert judgement.checked == 0


def test_without_replays_the_outcome_decides_against_the_reference():
    right = change_evidence(observe(), replays={})
    assert judge(right).status is Status.PASS
    fault = Fault(reduce=lambda locals_, step: locals_)
    judgement = judge(change_evidence(observe(fault), replays={}))
    assert [f.code for f in judgement.findings] == ["missing-reduction"]


@pytest.mark.parametrize("factor", [2.0, 0.5])
def test_without_local_gradients_the_reduced_one_is_held_against_the_reference(factor):
    def drop_local(evidence):
        kept = change_trace(
            evidence.observed, lambda key: key.phase != "local_gradient"
        )
        return replace(evidence, observed=kept)

    assert judge(drop_local(observe())).status is Status.PASS
    fault = Fault(reduce=reduce_with(lambda v: scale(add_values(v), factor)))
    judgement = judge(drop_local(observe(fault)))
    code = "double-reduction" if factor == 2 else "mean-instead-of-sum"
    assert [f.code for f in judgement.findings] == [code]
    fault = Fault(scale=lambda r, s: factor)
    judgement = judge(drop_local(observe(fault)))
    code = "loss-not-scaled" if factor == 2 else "loss-scaled-twice"
    assert [f.code for f in judgement.findings] == [code]


def freeze(trace: Trace, start: np.ndarray) -> Trace:
    """The same run of a program that never touches the table."""
    values = {
        key: start if (key.phase, key.variable) == ("variable", TABLE) else value
        for key, value in trace.values.items()
        if "gradient" not in key.phase or key.variable != TABLE
    }
    return replace(trace, values=values)


def test_a_variable_without_gradient_does_not_disturb():
    evidence = observe()
    key = TraceKey(step=-1, phase="variable", variable=TABLE, replica=WHOLE)
    start = evidence.reference.values[key]
    evidence = change_evidence(
        evidence,
        observed=freeze(evidence.observed, start),
        reference=freeze(evidence.reference, start),
        twins=tuple(freeze(twin, start) for twin in evidence.twins),
        replays={k: freeze(v, start) for k, v in evidence.fed.replays.items()},
    )
    judgement = judge(evidence)
    assert judgement.status is Status.PASS, judgement
    assert judgement.checked > 100


def test_two_causes_are_two_findings_in_causal_order():
    def update(new, old, gradients, run):
        return {**new, "iterations": old["iterations"] + 2}

    fault = Fault(reduce=lambda locals_, step: locals_, update=update)
    judgement = judge(observe(fault, rule=Rule(name="momentum")))
    assert [f.code for f in judgement.findings] == [
        "missing-reduction",
        "iterations-wrong",
    ]


def test_two_causes_in_one_phase_are_told_apart():
    def reduce(locals_, step):
        total = add_up(locals_)
        total[KERNEL] = scale(total[KERNEL], 2.0)
        return [{**total, BIAS: g[BIAS]} for g in locals_]

    judgement = judge(observe(Fault(reduce=reduce)))
    assert {(f.code, f.variable) for f in judgement.findings} == {
        ("double-reduction", KERNEL),
        ("variable-not-reduced", BIAS),
    }


def test_two_factors_that_lie_near_each_other_are_told_apart():
    """Of eight replicas the mean is nearly as far from a sum as nothing at all."""

    def reduce(locals_, step):
        total = add_up(locals_)
        total |= {KERNEL: scale(total[KERNEL], 1 / 8), BIAS: scale(total[BIAS], 0.02)}
        return [total for _ in locals_]

    judgement = judge(observe(Fault(reduce=reduce), replicas=8, examples=32))
    assert {(f.code, f.variables) for f in judgement.findings} == {
        ("mean-instead-of-sum", (KERNEL,)),
        ("scale-error", (BIAS,)),
    }


@pytest.mark.parametrize("declared", [None, "mean"])
def test_a_loss_that_is_undone_by_the_mean_is_a_note_unless_it_is_said(declared):
    fault = Fault(scale=lambda r, s: s.replicas, reduce=MEAN)
    setup = {"shards_known": False, "loss_reduction": declared}
    judgement = judge(observe(fault, **setup))
    assert judgement.status is Status.PASS
    assert ("undoes" in judgement.message) == (declared is None)


def test_a_wrong_loss_is_reported_though_the_gradients_come_right():
    fault = Fault(scale=lambda r, s: s.replicas, reduce=MEAN)
    judgement = judge(observe(fault))
    assert [f.code for f in judgement.findings] == ["loss-misreported"]


def test_the_judgement_names_references_and_the_worst_comparison():
    judgement = judge(observe(replicas=4))
    assert judgement.references["local_gradient"] == "one device, the same shard"
    assert "sum of the observed" in judgement.references["reduced_gradient"]
    assert "one-device update" in judgement.references["variable"]
    assert judgement.worst is not None
    assert 0 < judgement.worst.error_over_bound <= 1


def test_the_worst_comparison_of_replicas_that_differ_is_one_of_these():
    """A failed run had one within its bound."""

    def add_in_own_order(locals_, step):
        count = len(locals_)
        return [
            add_up([locals_[(r + i) % count] for i in range(count)])
            for r in range(count)
        ]

    judgement = judge(observe(Fault(reduce=add_in_own_order), replicas=3))
    assert judgement.findings[0].code == "replicas-diverged"
    assert judgement.worst is not None
    assert judgement.worst.error_over_bound > 1


@pytest.mark.parametrize("replicas", [2, 5])
def test_correct_runs_raise_no_false_alarm(replicas):
    """One run for each size; the sweeps have more."""
    check_no_false_alarm(seed=0, replicas=replicas)


@pytest.mark.parametrize(("trained", "status"), [(True, "vacuous"), (False, "pass")])
def test_a_variable_that_one_device_does_not_have_does_not_pass(
    trained: bool, status: str
) -> None:
    evidence = observe()
    observed = evidence.observed
    info = VariableInfo(
        path="unknown",
        role="variable",
        shape=(2,),
        dtype="float32",
        synchronised=True,
    )
    more = {
        TraceKey(step=step, phase="variable", variable="unknown", replica=replica): (
            np.full(2, step if trained else 0, np.float32)
        )
        for step in (INITIAL, 0, 1)
        for replica in range(observed.replicas)
    }
    grown = replace(
        observed,
        variables=(*observed.variables, info),
        values={**observed.values, **more},
    )
    judgement = judge(replace(evidence, observed=grown))
    assert judgement.status == status
    assert ("'unknown'" in judgement.message) == trained
