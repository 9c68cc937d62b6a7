"""State that replicas take over from one of them, where nobody sums."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from training_simulator import KERNEL, TRAINED, Fault, observe

from distbench.diagnose.judge import judge
from distbench.evidence import Evidence

OWN = Fault(reduce=lambda locals_, step: list(locals_))


def broadcast(first: Any) -> Evidence:
    """A run without sums, whose variables are the first replica's after each step."""
    evidence = observe(OWN, steps=2, sparse=False)
    values = dict(evidence.observed.values)
    for key, value in evidence.observed.select(phase="variable", replica=0):
        for replica in range(1, evidence.observed.replicas):
            if key.step >= 0 and key.variable in TRAINED:
                values[key.at(replica)] = first(key, value)
    return replace(evidence, observed=replace(evidence.observed, values=values))


def test_what_follows_on_another_replica_is_no_finding_of_its_own() -> None:
    (finding,) = judge(broadcast(lambda key, value: value)).findings
    assert (finding.code, finding.phase) == ("missing-reduction", "reduced_gradient")


@pytest.mark.parametrize("factor", [1.5, -1.0])
def test_what_follows_on_none_is_told(factor: float) -> None:
    def change(key, value):
        return value * np.float32(factor if key.variable == KERNEL else 1)

    codes = [(f.phase, f.variables) for f in judge(broadcast(change)).findings]
    assert ("variable", (KERNEL,)) in codes
