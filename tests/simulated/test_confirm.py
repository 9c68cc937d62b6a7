"""Whether a cause is confirmed, with simulated clusters in place of real ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gradient_values import add_up, to_array
from judged_runs import MEAN
from simulated_rule import Rule
from training_simulator import KERNEL, Fault, observe
from verdict_samples import make_finding, make_run, make_verdict

from distbench.checking import confirm
from distbench.checking.confirm import confirm_first, find_correction
from distbench.diagnose.judge import judge
from distbench.diagnose.judgement import Judgement
from distbench.evidence import Evidence
from distbench.observe.corrected import put_right
from distbench.trace import Phase
from distbench.verdict import Finding, Status
from distbench.verdict.document import verdict_from_json, verdict_to_json

WRONG_SUM = Fault(reduce=MEAN)
PUT_IN: Phase = "reduced_gradient"
SLOT = f"momentum/{KERNEL}"


def spoil_kernel(new, old, gradients, run):
    return {**new, KERNEL: new[KERNEL] * 1.5}


def run_corrected(fault: Fault) -> Evidence:
    """What `observe_corrected` gives: the state alone, of a run without the cause."""
    evidence = observe(fault)
    return put_right(evidence, evidence.observed)


def find_first(fault: Fault) -> tuple[tuple[Finding, ...], Evidence]:
    evidence = observe(fault)
    return judge(evidence).findings, evidence


def test_a_cause_whose_correction_repairs_the_outcome_is_confirmed() -> None:
    findings, evidence = find_first(WRONG_SUM)
    assert find_correction(findings, evidence) == PUT_IN
    confirmed = confirm_first(findings, PUT_IN, run_corrected(Fault()))
    assert [f.confirmed for f in confirmed] == [True]


def test_a_fault_that_the_first_one_hid_is_added() -> None:
    findings, _ = find_first(WRONG_SUM)
    corrected = run_corrected(Fault(update=spoil_kernel))
    first, second = confirm_first(findings, PUT_IN, corrected)
    assert first.confirmed is False
    assert (second.phase, second.variable) == ("variable", KERNEL)
    assert second.explanation.startswith("With this corrected: ")


def take_mean_before(new, old, gradients, run):
    """An accumulator that averages, whatever gradient is put in after it."""
    terms = [np.asarray(g[KERNEL], np.float32) for g in run.locals]
    return {**new, SLOT: (sum(terms) / np.float32(len(terms))).astype(np.float32)}


def test_an_accumulator_that_lies_before_the_correction_is_not_told_again() -> None:
    """It is as wrong as the sum that was taken from it, by the same factor."""
    rule = Rule(name="momentum", beta=0.0)
    evidence = observe(Fault(reduce=MEAN, update=take_mean_before), rule=rule)
    corrected = observe(Fault(update=take_mean_before), rule=rule)
    corrected = put_right(corrected, corrected.observed)
    findings = judge(evidence).findings
    assert [f.code for f in findings] == ["mean-instead-of-sum"]
    told = confirm_first(findings, PUT_IN, corrected, evidence)
    assert len(told) == 1
    assert len(confirm_first(findings, PUT_IN, corrected)) == 2


@pytest.mark.parametrize("other", [False, True])
def test_what_is_left_of_a_sum_is_off_by_what_was_handed_over(other: bool) -> None:
    """An error feedback keeps what is left, whatever gradient is put in after it."""
    rule = Rule(name="momentum", beta=0.0)

    def bend(value):
        return value - np.float32(0.25) * np.abs(value)

    def keep_rest(new, old, gradients, run):
        total = sum(np.asarray(g[KERNEL], np.float32) for g in run.locals)
        wrong = total**2 if other else bend(total) - total
        return {**new, SLOT: (total - wrong).astype(np.float32)}

    def reduce(locals_, step):
        sums = [add_up(locals_) for _ in locals_]
        return [{**g, KERNEL: bend(to_array(g[KERNEL]))} for g in sums]

    evidence = observe(Fault(reduce=reduce, update=keep_rest), rule=rule)
    corrected = observe(Fault(update=keep_rest), rule=rule)
    corrected = put_right(corrected, corrected.observed)
    findings = judge(evidence).findings[:1]
    told = confirm_first(findings, PUT_IN, corrected, evidence)
    assert len(told) == 1 + other


def test_a_slot_that_the_correction_changes_is_told() -> None:
    def halve(new, old, gradients, run):
        return {**new, SLOT: new[SLOT] * np.float32(0.5)}

    rule = Rule(name="momentum", beta=0.0)
    evidence = observe(Fault(reduce=MEAN, update=halve), rule=rule)
    corrected = observe(Fault(update=halve), rule=rule)
    corrected = put_right(corrected, corrected.observed)
    findings = judge(evidence).findings[:1]
    assert len(confirm_first(findings, PUT_IN, corrected, evidence)) == 2


def test_what_was_found_beside_the_first_is_not_told_twice() -> None:
    both = Fault(reduce=MEAN, update=spoil_kernel)
    findings, _ = find_first(both)
    assert len(findings) == 2
    again = replace(findings[1], variables=(KERNEL,))
    corrected = run_corrected(Fault(update=spoil_kernel))
    confirmed = confirm_first((findings[0], again), PUT_IN, corrected)
    codes = [(f.code, f.variable) for f in confirmed]
    assert len(set(codes)) == len(codes)


def test_one_of_two_causes_before_the_correction_is_not_confirmed_by_it() -> None:
    """Both are corrected at once; that the outcome is right tells neither."""
    findings, _ = find_first(WRONG_SUM)
    other = replace(findings[0], code="scale-error", variables=(KERNEL,))
    confirmed = confirm_first((findings[0], other), PUT_IN, run_corrected(Fault()))
    assert [f.confirmed for f in confirmed] == [None, None]


@pytest.mark.parametrize(("changes", "confirmed"), [(False, True), (True, None)])
def test_a_change_before_the_sum_may_be_corrected_as_well(
    changes: bool, confirmed: bool | None
) -> None:
    """That a state does not follow was taken for one."""
    findings, evidence = find_first(WRONG_SUM)
    values = {
        key: value / 2 if changes and key.phase == "reduced_gradient" else value
        for key, value in evidence.reference.select(variable=KERNEL)
    }
    reference = replace(evidence.reference, values=values)
    fed = replace(evidence.fed, apart=evidence.observed)
    seen = replace(evidence, reference=reference, fed=fed)
    before = (replace(findings[0], phase="local_gradient"),)
    (first,) = confirm_first(before, PUT_IN, run_corrected(Fault()), seen)
    assert first.confirmed is confirmed


@pytest.mark.parametrize(
    ("phase", "confirmed"), [("loss", True), ("reduced_gradient", False)]
)
def test_a_metric_stays_wrong_where_only_the_gradient_of_a_loss_is_put_right(
    phase: str, confirmed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is fed with the loss; behind a wrong sum it has a fault of its own."""
    findings, _ = find_first(WRONG_SUM)
    metric = make_finding(code="metric-wrong", phase="loss", variable="accuracy")
    left = Judgement(status=Status.FAIL, findings=(metric,))
    monkeypatch.setattr(confirm, "judge", lambda _: left)
    wrong = (replace(findings[0], phase=phase),)
    first, *others = confirm_first(wrong, PUT_IN, run_corrected(Fault()))
    assert (first.confirmed, len(others)) == (confirmed, 0 if confirmed else 1)


def test_what_is_unexplained_has_no_cause_to_confirm() -> None:
    findings, evidence = find_first(WRONG_SUM)
    unknown = (replace(findings[0], code="unexplained"),)
    assert find_correction(unknown, evidence) is None


def test_a_finding_in_the_state_is_left_alone() -> None:
    findings, evidence = find_first(Fault(update=spoil_kernel))
    assert find_correction(findings, evidence) is None
    assert findings[0].confirmed is None


@pytest.mark.parametrize("confirmed", [True, False, None])
def test_the_json_keeps_it(confirmed: bool | None) -> None:
    run = make_run(Status.FAIL, findings=(make_finding(confirmed=confirmed),))
    (found,) = verdict_from_json(verdict_to_json(make_verdict(run))).findings
    assert found.confirmed is confirmed


def test_what_no_device_can_say_cannot_be_put_in() -> None:
    """As what a sum has to be where shards have other gradients than their batch."""
    findings, evidence = find_first(WRONG_SUM)
    known = evidence.measure.known
    assert find_correction(findings, evidence) == PUT_IN
    measure = replace(evidence.measure, known=frozenset(known) - {PUT_IN})
    assert find_correction(findings, replace(evidence, measure=measure)) is None
