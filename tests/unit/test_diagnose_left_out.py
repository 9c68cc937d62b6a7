"""Sums of gradients that one device leaves out of its update."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from gradient_values import to_array
from training_simulator import Fault, Gradients, observe

from distbench.diagnose.judge import judge


def clear(gradients: Gradients) -> Gradients:
    return {path: 0.0 * to_array(value) for path, value in gradients.items()}


def keep_first(parts: list[Gradients], step: int) -> list[Gradients]:
    """Only the first replica goes on to train."""
    del step
    return [{path: to_array(v) for path, v in parts[0].items()} for _ in parts]


def test_slices_that_one_device_does_not_hand_on_are_no_addends() -> None:
    evidence = observe(
        Fault(reduce=keep_first), alone=clear, sparse=True, replicas=3, steps=2
    )
    observed = evidence.observed
    handed = {
        replace(key, phase="reduced_gradient"): np.zeros_like(to_array(value))
        for key, value in observed.select(phase="local_gradient")
    }
    apart = replace(observed, values=handed)
    findings = judge(replace(evidence, apart=apart)).findings
    assert findings[0].phase == "reduced_gradient"
    assert not any(finding.code.startswith("sparse") for finding in findings)
