"""Who averages what every replica holds has it again, but for rounding."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gradient_values import to_array
from simulated_rule import Rule
from training_simulator import KERNEL, Fault, observe

from distbench.diagnose.judge import judge
from distbench.verdict import Status


def average_again(factor=1.0):
    """Each gradient is added up once for each replica, and divided by their number."""

    def average(gradients, replica, step, replicas=3):
        del replica, step
        made = {}
        for path, value in gradients.items():
            own = to_array(value).astype(np.float32)
            total = own
            for _ in range(replicas - 1):
                total = (total + own).astype(np.float32)
            mean = total * np.float32(1 / replicas) * factor
            made[path] = np.asarray(mean, np.float32)
        return made

    return Fault(transform=average)


@pytest.mark.parametrize("seed", range(3))
def test_sums_may_be_averaged_once_more(seed):
    evidence = observe(average_again(), replicas=3, sparse=False, seed=seed)
    assert judge(evidence).status is Status.PASS


@pytest.mark.parametrize("replicas", [2, 3])
def test_more_than_that_rounds_is_wrong(replicas):
    fault = average_again(1 + 2e-6)
    found = judge(observe(fault, replicas=replicas, sparse=False))
    assert found.status is Status.FAIL
    assert found.findings[0].phase == "applied_gradient"


MOMENTUM = f"momentum/{KERNEL}"


def keep_mean(averages, factor=1.0):
    """Each replica assigns the same momentum, of which the mean is kept."""

    def update(new, old, gradients, run):
        del old, gradients, run
        own = new[MOMENTUM]
        mean = ((own + own) + own) * np.float32(1 / 3) * np.float32(factor)
        return {**new, MOMENTUM: mean.astype(np.float32)}

    evidence = observe(
        Fault(update=update), replicas=3, sparse=False, rule=Rule(name="momentum")
    )

    def declare(trace):
        infos = tuple(
            replace(info, averages=averages, trainable=False)
            if info.path == MOMENTUM
            else info
            for info in trace.variables
        )
        return replace(trace, variables=infos)

    return judge(evidence.change_traces(declare))


def test_what_replicas_assign_may_be_averaged():
    assert keep_mean(averages=True).status is Status.PASS


@pytest.mark.parametrize(("averages", "factor"), [(False, 1.0), (True, 1 + 2e-6)])
def test_other_state_has_the_same_bits(averages, factor):
    found = keep_mean(averages, factor)
    assert found.status is Status.FAIL
    assert found.findings[0].variable == MOMENTUM
