"""State of which a replay does not tell, or not to the last bit, what it has to be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from evidence_changes import change_evidence
from grouped_losses import by_statistics, of_halves, share_in_half
from grouped_training import Simulator
from planted_case import MOMENTUM
from training_simulator import KERNEL, Fault, observe
from wrong_steps import add_state

from distbench.diagnose.judge import judge
from distbench.evidence import Evidence
from distbench.trace import Trace, VariableInfo
from distbench.verdict import Status


def observe_moved(change, **setup):
    """A run whose kernel is another after the update, on all replicas."""
    fault = Fault(
        update=add_state(lambda k, v, old, run: change(v) if k == KERNEL else v)
    )
    return observe(fault, **{"steps": 2, "rule": MOMENTUM, **setup})


def test_what_data_leads_need_not_repeat_a_replay_bit_by_bit():
    evidence = observe_moved(lambda v: np.nextafter(v, np.float32(np.inf)))
    assert judge(evidence).status is Status.FAIL
    led = change_evidence(evidence, undetermined=(KERNEL,))
    assert judge(led).status is Status.PASS, judge(led).findings


def test_what_data_leads_is_held_against_one_device():
    evidence = observe_moved(lambda v: v * np.float32(1.001))
    judgement = judge(change_evidence(evidence, undetermined=(KERNEL,)))
    assert judgement.status is Status.FAIL
    first = judgement.findings[0]
    assert (first.phase, first.variables) == ("variable", (KERNEL,))


def compile_apart(evidence, error):
    """With a replay of which the kernel comes out otherwise when nothing is joined."""
    replay = evidence.fed.replays["reduced_gradient"]
    values = {
        key: value * (1 + np.float32(error)) if key.variable == KERNEL else value
        for key, value in replay.values.items()
    }
    return change_evidence(evidence, op_by_op=replace(replay, values=values))


@pytest.mark.parametrize("tier", ["exact", "bounded"])
@pytest.mark.parametrize(
    ("factor", "status"), [(1 + 2e-7, Status.PASS), (1.001, Status.FAIL)]
)
def test_an_update_may_lie_as_far_apart_as_joined_ops_do(factor, status, tier):
    """In the exact tier as well: it is about sums, and no update of Adam's is one."""
    evidence = observe_moved(lambda v: v * np.float32(factor), tier=tier)
    assert judge(evidence).status is Status.FAIL
    assert judge(compile_apart(evidence, 2e-7)).status is status


def add_other(trace: Trace) -> Trace:
    """A second variable that goes the way of the first one."""
    kernel = trace.by_path["kernel"]
    values = {replace(key, variable="other"): v for key, v in trace.values.items()}
    return replace(
        trace,
        variables=(*trace.variables, replace(kernel, path="other")),
        values={**values, **trace.values},
    )


def observe_grouped(compute, factor: float) -> Evidence:
    """A right run that no global batch is a measure of, and a kernel times a factor."""
    made = Simulator(compute).make_evidence()
    values = {
        key: value * np.float32(factor)
        if key.phase == "variable" and key.step >= 0
        else value
        for key, value in made.observed.values.items()
    }
    spoilt = replace(made.observed, values=values)
    observed = add_other(made.observed)
    kept = {k: v for k, v in observed.values.items() if k.variable != "kernel"}
    return change_evidence(
        made,
        observed=replace(observed, values={**kept, **spoilt.values}),
        reference=add_other(made.reference),
        twins=tuple(map(add_other, made.twins)),
        probes={name: add_other(probe) for name, probe in made.probes.items()},
        replays={name: add_other(fed) for name, fed in made.fed.replays.items()},
    )


@pytest.mark.parametrize("compute", [by_statistics, of_halves, share_in_half])
@pytest.mark.parametrize("factor", [1.0, 1.5])
def test_what_neither_a_replay_nor_one_device_tells_does_not_pass(compute, factor):
    evidence = observe_grouped(compute, factor)
    status = Status.PASS if factor == 1 else Status.FAIL
    assert judge(evidence).status is status
    judgement = judge(change_evidence(evidence, undetermined=("kernel",)))
    assert judgement.status is Status.VACUOUS, judgement.findings
    assert "'kernel' was trained, and compared with nothing" in judgement.message
    assert "more than its gradient leads it" in judgement.message


@pytest.mark.parametrize("led", [(), (KERNEL,)])
def test_state_that_nothing_tells_of_is_not_said_to_lack_gradients(led):
    """It spoke of numbers that would be the same with an example lost."""
    known = ("loss", "local_gradient", "reduced_gradient", "applied_gradient")
    evidence = change_evidence(observe(), known=known, undetermined=led, replays={})
    judgement = judge(evidence)
    assert judgement.status is Status.VACUOUS
    assert "no comparison of variable could be made" in judgement.message
    assert "not 0" not in judgement.message


def add_counter(trace: Trace) -> Trace:
    """State that steps move, and that no gradient and no example leads."""
    info = VariableInfo(
        path="seed", role="variable", shape=(), dtype="int64", synchronised=True
    )
    keys = {replace(k, variable="seed") for k in trace.values if k.phase == "variable"}
    values = {key: np.array(7 + key.step) for key in keys}
    return replace(
        trace,
        variables=(*trace.variables, replace(info, trainable=False)),
        values={**trace.values, **values},
    )


def test_what_no_gradient_trains_does_not_have_to_be_told():
    evidence = Simulator(by_statistics).make_evidence().change_traces(add_counter)
    assert judge(evidence).status is Status.PASS
