"""Losses that are wrong by what their step has assigned before, and by nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from evidence_changes import change_evidence
from led_runs import make_run
from training_simulator import Fault

from distbench.diagnose.judge import judge
from distbench.evidence import Evidence
from distbench.trace import COMPUTED, WHOLE, TraceKey, Value
from distbench.trace.numbers import densify
from distbench.verdict import Status

pytestmark = pytest.mark.usefixtures("limit_held")


def hold(evidence: Evidence, share: float) -> Evidence:
    """With what one device has from the replicas' own statistic.

    Args:
        evidence: A run with wrong losses and a wrong statistic.
        share: What part of their error follows from that.
    """
    values: dict[TraceKey, Value] = {}
    for key, due in evidence.reference.select(replica=WHOLE):
        parts = evidence.observed.get_replicas(key)
        if key.phase in COMPUTED and parts:
            seen = np.sum([densify(part) for part in parts], axis=0)
            values[key] = np.asarray((1 - share) * densify(due) + share * seen)
    held = replace(evidence.reference, values=values, notes={"held": ["moving"]})
    return change_evidence(evidence, held=held)


@pytest.fixture(name="wrong")
def _wrong() -> Evidence:
    """Replicas have half of their shares, and the statistic of the first replica."""
    halved = Fault(scale=lambda r, setup: 0.5)
    return make_run((1.0, 0.0, 0.0), known=True, fault=halved)


def test_losses_that_follow_from_a_wrong_statistic_are_not_told(
    wrong: Evidence,
) -> None:
    judgement = judge(hold(wrong, 1.0))
    assert judgement.status is Status.FAIL
    assert {f.variables for f in judgement.findings} == {("moving",)}


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_losses_that_are_wrong_by_themselves_are_told(
    wrong: Evidence, share: float
) -> None:
    """Also where a part of their error follows."""
    found = [f.phase for f in judge(hold(wrong, share)).findings]
    assert found[0] in COMPUTED
    assert found == [f.phase for f in judge(wrong).findings]
