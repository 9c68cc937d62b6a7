"""Another reading's finding against what the sum is by this one."""

from __future__ import annotations

from typing import Any

import pytest
from gradient_values import add_up, scale
from training_simulator import BIAS, KERNEL, Fault, observe

from distbench.compare.state.measured_noise import measure_noise
from distbench.diagnose.judge import judge
from distbench.diagnose.readings.reading import Reading
from distbench.diagnose.readings.weighed import Weighed


def scale_kernel(own: Any, step: int) -> Any:
    total = add_up(own)
    return [{**total, KERNEL: scale(total[KERNEL], 1.3)}] * len(own)


def scale_both(own: Any, step: int, *, bias_from: int) -> Any:
    (total, *_) = scale_kernel(own, step)
    factor = 1.3 if step >= bias_from else 1.0
    return [{**total, BIAS: scale(total[BIAS], factor)}] * len(own)


@pytest.mark.parametrize(("bias_from", "refuted"), [(0, True), (1, False)])
def test_a_variable_refutes_a_finding_in_the_step_in_which_that_has_it_wrong(
    bias_from: int, refuted: bool
) -> None:
    """The finding is of the first step, and has the bias from another one on."""
    evidence = observe(Fault(reduce=scale_kernel))
    here = Weighed(Reading(evidence=evidence), measure_noise(evidence))
    other = judge(
        observe(
            Fault(reduce=lambda own, step: scale_both(own, step, bias_from=bias_from))
        )
    )
    assert [set(f.variables) for f in other.findings] == [{KERNEL, BIAS}]
    assert here.refutes(other) is refuted
