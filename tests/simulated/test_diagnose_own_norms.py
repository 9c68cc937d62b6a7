"""Gradients with a wrong scale, whose losses are right."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from training_simulator import Fault, observe

from distbench.diagnose.judge import judge
from distbench.evidence import Evidence
from distbench.trace import WHOLE, Trace


def undo(loss, replica):
    return loss / 2


@pytest.mark.parametrize("by_norm", [False, True])
def test_own_norms_are_told_of_gradients_that_are_as_long(by_norm: bool) -> None:
    fault = Fault(scale=lambda r, s: 2.0, loss=undo)
    evidence = observe(fault, replicas=2, sparse=False)
    if by_norm:
        evidence = divide_by_norms(evidence)
    finding = judge(evidence).findings[0]
    assert (finding.code, finding.phase) == ("loss-not-scaled", "local_gradient")
    assert "the losses that are told are right" in finding.explanation
    assert ("divided by their own norm" in finding.explanation) is by_norm


def divide_by_norms(evidence: Evidence) -> Evidence:
    def divide(trace: Trace, length: float) -> Trace:
        values = {
            key: np.asarray(length * value / np.linalg.norm(value), np.float32)
            if key.phase == "local_gradient" and key.replica != WHOLE
            else value
            for key, value in trace.values.items()
        }
        return replace(trace, values=values)

    return replace(
        evidence,
        observed=divide(evidence.observed, 1.0),
        reference=divide(evidence.reference, 0.5),
    )
