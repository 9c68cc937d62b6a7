"""Who averages sums that every replica holds has them again, but for rounding."""

from __future__ import annotations

import numpy as np
import pytest
from training_simulator import Fault, observe, to_array

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
