"""Optimizers that have other settings than on one device."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np
import pytest
from evidence_changes import change_evidence
from gradient_values import add_values, scale
from training_simulator import TRAINED, Fault, Rule, observe, reduce_with

from distbench.diagnose.judge import judge
from distbench.diagnose.judgement import Judgement
from distbench.evidence import Evidence
from distbench.trace import TraceKey, VariableInfo
from distbench.trace.settings import note_settings
from distbench.verdict import Status

N = 3
F = np.float32
_TOLD = "'times' of the optimizer is 2 on the cluster and 1 on one device"


_OF_N = f"'times' of the optimizer is {N} on the cluster and 1 on one device"
_UNTAKEN = ("0.times",)


def keep(new, old, gradients, run):
    return new


def lengthen(new, old, gradients, run):
    """Takes steps that are twice as long: a setting, or the update twice."""
    return {**new, **{p: old[p] + F(2) * (new[p] - old[p]) for p in gradients}}


def repeat(new, old, gradients, run):
    """Takes steps that are N times as long."""
    return {**new, **{p: old[p] + F(N) * (new[p] - old[p]) for p in gradients}}


def divide(new, old, gradients, run):
    """Divides by N what the sum leads to."""
    return {**new, **{p: old[p] + (new[p] - old[p]) / F(N) for p in gradients}}


def bend(new, old, gradients, run):
    """Takes steps of which nothing known makes these."""
    bent = {p: np.abs(new[p] - old[p]) ** F(0.7) for p in gradients}
    return {**new, **{p: (old[p] - bent[p]).astype(F) for p in gradients}}


def note(
    evidence: Evidence, seen: object, others: Mapping[str, int] | None = None
) -> Evidence:
    """The same where a setting is told on both sides, as 1 on one device."""
    observed, reference = (
        replace(
            trace,
            notes={
                **trace.notes,
                **note_settings({"0.times": value, **(others or {})}),
            },
        )
        for trace, value in ((evidence.observed, seen), (evidence.reference, 1))
    )
    return replace(evidence, observed=observed, reference=reference)


def add_slots(evidence: Evidence, owners: Collection[str]) -> Evidence:
    """The same where the cluster alone keeps a slot of some variables."""
    observed = evidence.observed
    slots = [
        VariableInfo(
            path=f"largest/{path}", role="slot", of=path, shape=(2,), dtype="float32"
        )
        for path in owners
    ]
    keys = (
        TraceKey(step=0, phase="slot", variable=slot.path, replica=0) for slot in slots
    )
    observed = replace(
        observed,
        values={**observed.values, **dict.fromkeys(keys, np.zeros(2, F))},
        variables=(*observed.variables, *slots),
    )
    return replace(evidence, observed=observed)


def find(
    fault: Fault,
    seen: object,
    configured: Fault | None = None,
    *,
    owners: Collection[str] = (),
    untaken: Collection[str] = (),
) -> Judgement:
    """What is said where a setting differs.

    Args:
        fault: What is wrong on the cluster.
        seen: What the setting is there.
        configured: What one device leads to with it; None where it takes it not.
        owners: Variables of which the cluster alone has a slot for it.
        untaken: What one device was asked for with it, and could not take.
    """
    rule = Rule(name="momentum")
    evidence = note(observe(fault, rule=rule, replicas=N), seen)
    evidence = add_slots(evidence, owners)
    if configured is not None:
        run = observe(configured, rule=rule, replicas=N).observed
        run = replace(run, notes={"untried": [*untaken]})
        evidence = change_evidence(evidence, configured=run)
    return judge(evidence)


@pytest.mark.parametrize("update", [lengthen, bend])
def test_a_setting_that_leads_there_is_the_cause(update) -> None:
    judgement = find(Fault(update=update), 2, Fault(update=update))
    (finding,) = judgement.findings
    assert (finding.code, finding.phase) == ("hyperparameter-differs", "variable")
    assert set(finding.variables) == set(TRAINED)
    assert _TOLD in finding.explanation
    assert finding.confidence > 0.99
    assert "note" not in judgement.message


def test_one_that_leads_elsewhere_is_a_note() -> None:
    judgement = find(Fault(update=lengthen), 2, Fault(update=bend))
    (finding,) = judgement.findings
    assert finding.code == "update-repeated"
    assert _TOLD in judgement.message


def test_one_that_asks_for_a_slot_is_the_cause_where_there_is_no_other() -> None:
    (finding,) = find(Fault(update=bend), 2, owners=TRAINED).findings
    assert finding.code == "hyperparameter-differs"
    assert _TOLD in finding.explanation
    assert finding.confidence == 0
    (finding,) = find(Fault(update=lengthen), 3, owners=TRAINED).findings
    assert finding.code == "update-repeated"


def test_one_that_was_not_tried_is_the_cause_of_steps_as_many_times_as_long() -> None:
    (finding,) = find(Fault(update=lengthen), 2).findings
    assert (finding.code, finding.ratio) == ("hyperparameter-differs", 2)
    assert f"{_TOLD}, and the steps are 2 times as long" in finding.explanation
    (finding,) = find(Fault(update=lengthen), 3).findings
    assert finding.code == "update-repeated"


@pytest.mark.parametrize(
    ("update", "seen", "code", "words"),
    [
        (repeat, N, "update-repeated", f"{N} times as large; by as much a setting"),
        (divide, 1 / N, "hyperparameter-differs", f"it is divided by N = {N}; by as"),
    ],
)
def test_what_is_made_of_the_replicas_has_the_factors_of_their_mistakes(
    update, seen, code, words
) -> None:
    (finding,) = find(Fault(update=update), seen, Fault(), untaken=_UNTAKEN).findings
    assert finding.code == code
    assert words in finding.explanation
    assert "'times' of the optimizer is" in finding.explanation


def test_another_factor_is_that_of_a_setting_which_one_device_cannot_take() -> None:
    update = Fault(update=lengthen)
    (finding,) = find(update, 2, Fault(), untaken=_UNTAKEN).findings
    assert finding.code == "hyperparameter-differs"
    assert "once for each" not in finding.explanation


def test_one_that_nobody_was_asked_to_take_may_be_made_of_the_replicas() -> None:
    (finding,) = find(Fault(update=repeat), N).findings
    assert finding.code == "hyperparameter-differs"
    assert (
        f"{_OF_N}, and the steps are {N} times as long, as what is done once for"
        in (finding.explanation)
    )


@pytest.mark.parametrize("seen", [True, "2", None, 0, -2])
def test_what_is_no_other_length_makes_none(seen: object) -> None:
    judgement = find(Fault(update=lengthen), seen)
    assert {finding.code for finding in judgement.findings} == {"update-repeated"}


def test_it_is_none_of_what_the_optimizer_with_that_slot_does_not_have() -> None:
    first, other = find(Fault(update=bend), 2, owners=TRAINED[:1]).findings
    assert {first.code, other.code} == {"hyperparameter-differs", "unexplained"}
    told, left = sorted((first, other), key=lambda finding: finding.code)
    assert told.variables == TRAINED[:1]
    assert set(left.variables) == set(TRAINED[1:])


def test_of_several_optimizers_it_is_told_which_one_has_it() -> None:
    evidence = note(observe(Fault(update=keep), replicas=N), 2, others={"1.times": 1})
    assert "'times' of optimizer 0 is 2" in judge(evidence).message


def test_one_that_cannot_be_tried_may_lead_nothing() -> None:
    judgement = find(Fault(update=bend), 2)
    assert {finding.code for finding in judgement.findings} == {"unexplained"}
    assert _TOLD in judgement.message


def test_one_that_was_tried_in_vain_is_not() -> None:
    judgement = find(Fault(update=bend), 2, Fault(update=keep))
    assert {finding.code for finding in judgement.findings} == {"unexplained"}
    assert _TOLD in judgement.message


def test_one_that_is_the_same_is_not() -> None:
    judgement = find(Fault(update=bend), 1)
    assert {finding.code for finding in judgement.findings} == {"unexplained"}
    assert "times" not in judgement.message


def test_a_wrong_sum_is_no_matter_of_settings() -> None:
    mean = Fault(reduce=reduce_with(lambda own: scale(add_values(own), 1 / N)))
    judgement = find(mean, 2, Fault(update=lengthen))
    (finding,) = judgement.findings
    assert finding.phase == "reduced_gradient"
    assert finding.code != "hyperparameter-differs"


def test_where_nothing_is_wrong_a_note_tells() -> None:
    judgement = find(Fault(update=keep), 2)
    assert judgement.status is Status.PASS
    assert f"note: {_TOLD}" in judgement.message
