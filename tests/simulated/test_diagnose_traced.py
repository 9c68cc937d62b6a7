"""Rules that go by a number of Python's, which each replica's trace moves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from evidence_changes import change_evidence
from training_simulator import TRAINED, Fault, Rule, observe

from distbench.diagnose.judge import judge
from distbench.trace import Trace
from distbench.verdict import Finding

N = 2
F = np.float32
_TOLD = "'layer' stands as replicas leave it"


def find(rate: float, traced_rate: float, *, local: bool = False) -> list[Finding]:
    """What is said of another rate, where replicas' traces lead to a third one.

    Args:
        rate: How many times the rule's the cluster's is.
        traced_rate: How many times that of one device is, traced as replicas are.
        local: Whether a replay of local gradients comes to what the cluster has.
    """

    def update_with(times):
        def update(new, old, gradients, run):
            steps = {p: old[p] + F(times) * (new[p] - old[p]) for p in gradients}
            return {**new, **steps}

        return update

    rule = Rule(name="momentum", counts=True)
    runs = [
        observe(Fault(update=update_with(times)), rule=rule, steps=3, replicas=N)
        for times in (rate, traced_rate)
    ]
    evidence, other = runs
    traced = replace(other.observed, notes={**other.observed.notes, "number": "layer"})
    changes: dict[str, tuple[Trace, ...] | dict] = {"traced": (traced,)}
    if local:
        replays = dict.fromkeys(("reduced_gradient", "local_gradient"), other.observed)
        changes = {"replays": {**evidence.fed.replays, **replays}}
    return list(judge(change_evidence(evidence, **changes)).findings)


@pytest.mark.parametrize("rate", [0.25, 0.7, 3.0])
def test_what_the_replicas_traces_lead_to_is_told(rate: float) -> None:
    (finding,) = find(rate, rate)
    assert (finding.code, finding.phase) == ("hyperparameter-differs", "variable")
    assert len(finding.variables) == len(TRAINED)
    assert _TOLD in finding.explanation


@pytest.mark.parametrize("rate", [0.25, 0.7, 3.0])
def test_what_they_do_not_lead_to_is_not(rate: float) -> None:
    found = find(rate, 1.25)
    assert found
    assert not any(_TOLD in finding.explanation for finding in found)


def test_a_replay_that_no_gradient_leads_is_not_taken_for_one_of_local_ones() -> None:
    found = find(0.7, 0.7, local=True)
    assert found
    assert not any(finding.code == "missing-reduction" for finding in found)
