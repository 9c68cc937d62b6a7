"""Programs that sum by hand, where the global batch of one device is no measure."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from evidence_changes import change_evidence
from grouped_losses import by_statistics, squares_in_half
from grouped_training import RATE, Simulator, put
from hidden_sums import hide_sums
from test_exchange import add_head

from distbench.diagnose.judge import judge
from distbench.observe.corrected import put_right
from distbench.verdict import Status


def add_all(parts, _):
    return sum(parts)


def average(parts, _):
    return sum(parts) / len(parts)


def observe_hidden(compute, reduce=add_all):
    """A run without a reduced gradient, and what one device makes of the right sum."""
    evidence = hide_sums(Simulator(compute, reduce=reduce).make_evidence())
    half = "float16" if compute is squares_in_half else "float32"
    notes = {**evidence.reference.notes, "narrowest": half}
    due = {}
    for step in range(3):
        found = evidence.observed.select(step=step, phase="local_gradient")
        parts = [value for _, value in found]
        total = np.sum(parts, axis=0, dtype=np.float64).astype(np.float32)
        before = evidence.get_before(step, "variable", "kernel")
        put(due, step, "variable", before - RATE * total, 0)
    return change_evidence(
        evidence,
        reference=replace(evidence.reference, notes=notes),
        due=replace(evidence.reference, values=due),
    )


@pytest.mark.parametrize("compute", [by_statistics, squares_in_half])
def test_the_state_that_follows_from_a_hidden_sum_passes(compute):
    evidence = observe_hidden(compute)
    judgement = judge(evidence)
    assert judgement.status is Status.PASS, judgement.findings
    assert "the observed local gradients" in judgement.references["variable"]


@pytest.mark.parametrize("compute", [by_statistics, squares_in_half])
def test_a_wrong_hidden_sum_is_found_by_what_follows(compute):
    evidence = observe_hidden(compute, average)
    judgement = judge(evidence)
    assert judgement.status is Status.FAIL
    assert judgement.findings[0].phase == "variable"


def observe_both(reduce):
    """The optimizer has the kernel, and nobody sees the sum of the head's gradients."""
    by_hand = observe_hidden(by_statistics, reduce)
    due = {replace(k, variable="head"): v for k, v in by_hand.fed.due.values.items()}
    nothing = {"reduced_gradient": replace(by_hand.reference, values={})}
    both = add_head(
        Simulator(by_statistics).make_evidence(),
        change_evidence(by_hand, replays=nothing),
    )
    return change_evidence(both, due=replace(by_hand.fed.due, values=due))


@pytest.mark.parametrize(
    ("reduce", "status"), [(add_all, Status.PASS), (average, Status.FAIL)]
)
def test_what_is_summed_by_hand_beside_an_optimizer_is_judged(reduce, status):
    judgement = judge(observe_both(reduce))
    assert judgement.status is status, judgement.findings
    for finding in judgement.findings:
        assert (finding.phase, finding.variables) == ("variable", ("head",))


def test_a_corrected_run_is_not_held_against_what_follows_from_the_wrong_one():
    """A second update of a step has other gradients behind the corrected first one."""
    evidence = observe_both(average)
    assert judge(evidence).findings
    assert not judge(put_right(evidence, evidence.observed)).findings


def test_what_one_device_does_not_repeat_proves_nothing():
    """As where the step follows the loss besides, which is another one there."""
    evidence = change_evidence(observe_hidden(by_statistics), undetermined=("kernel",))
    assert judge(evidence).status is Status.VACUOUS
