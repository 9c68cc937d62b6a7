"""State that data leads besides its gradients, such as a rate that follows the loss."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from planted_case import MOMENTUM
from training_simulator import KERNEL, Fault, observe
from wrong_steps import add_state

from distbench.diagnose.judge import judge
from distbench.verdict import Status


def observe_moved(change):
    """A run whose kernel is another after the update, on all replicas."""
    fault = Fault(
        update=add_state(lambda k, v, old, run: change(v) if k == KERNEL else v)
    )
    return observe(fault, steps=2, rule=MOMENTUM)


def test_what_data_leads_need_not_repeat_a_replay_bit_by_bit():
    evidence = observe_moved(lambda v: np.nextafter(v, np.float32(np.inf)))
    assert judge(evidence).status is Status.FAIL
    led = replace(evidence, undetermined=(KERNEL,))
    assert judge(led).status is Status.PASS, judge(led).findings


def test_what_data_leads_is_held_against_one_device():
    evidence = observe_moved(lambda v: v * np.float32(1.001))
    judgement = judge(replace(evidence, undetermined=(KERNEL,)))
    assert judgement.status is Status.FAIL
    first = judgement.findings[0]
    assert (first.phase, first.variables) == ("variable", (KERNEL,))
