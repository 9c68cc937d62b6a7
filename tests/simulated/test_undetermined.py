"""State of which a replay does not tell, or not to the last bit, what it has to be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from evidence_changes import change_evidence
from planted_case import MOMENTUM
from training_simulator import KERNEL, Fault, observe
from wrong_steps import add_state

from distbench.diagnose.judge import judge
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
