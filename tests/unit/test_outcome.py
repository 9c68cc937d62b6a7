"""The first number that a finding spoils, and its way through JSON."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from gradient_values import add_values, scale
from simulated_rule import Rule
from training_simulator import Fault, observe, reduce_with
from verdict_samples import make_finding, make_run, make_verdict

from distbench.diagnose.judge import judge
from distbench.diagnose.readings.outcome import list_places
from distbench.trace import INITIAL, WHOLE, VariableInfo
from distbench.verdict import Outcome, Status
from distbench.verdict.document import verdict_from_json, verdict_to_json

TWICE = Fault(reduce=reduce_with(lambda values: scale(add_values(values), 2)))


@pytest.mark.parametrize("tier", ["bounded", "free"])
def test_a_finding_names_the_first_wrong_number(tier):
    evidence = observe(TWICE, tier=tier, replicas=2, steps=2)
    judgement = judge(evidence)
    assert judgement.status is Status.FAIL
    outcome = judgement.findings[0].outcome
    assert outcome is not None
    assert (outcome.phase, outcome.step) == ("variable", 0)
    assert abs(outcome.observed - outcome.expected) > outcome.bound
    infos = [v.path for v in evidence.observed.variables if v.role == "variable"]
    assert infos[outcome.index] == outcome.variable
    for trace, replica, number in (
        (evidence.observed, outcome.replica, outcome.observed),
        (evidence.reference, WHOLE, outcome.expected),
    ):
        keyed = trace.select(step=0, variable=outcome.variable, replica=replica)
        value = next(value for key, value in keyed if key.phase == "variable")
        assert float(value[outcome.element]) == number


def test_a_variable_that_the_subject_does_not_list_is_none_to_look_at():
    evidence = observe(TWICE, replicas=2, steps=2)
    named = judge(evidence).findings[0].outcome.variable
    infos = evidence.observed.variables
    infos = tuple(replace(v, listed=v.path != named) for v in infos)
    observed = replace(evidence.observed, variables=infos)
    outcome = judge(replace(evidence, observed=observed)).findings[0].outcome
    listed = [v.path for v in infos if v.role == "variable" and v.listed]
    assert listed[outcome.index] == outcome.variable


def test_what_updates_a_variable_has_its_place_in_the_subjects_list():
    """A program that updates by hand may list its momentum first."""
    moved = VariableInfo(path="moved", role="slot", shape=(), dtype="float32")
    kernel = replace(moved, path="kernel", role="variable")
    shown = replace(kernel, path="shown", listed=False)
    slot = replace(moved, path="m/kernel", listed=False)
    counters = [
        replace(slot, path=path, role="iterations") for path in ("iter", "iter#2")
    ]
    infos = (moved, kernel, shown, counters[0], slot, counters[1])
    places = {"moved": 0, "kernel": 1, "iter": 0, "iter#2": 1}
    assert list_places(infos) == places


def test_of_a_wrong_start_the_first_step_is_named():
    def start(state, replica):
        slots = {name: value for name, value in state.items() if "/" in name}
        return {**state, **{name: value + 1 for name, value in slots.items()}}

    evidence = observe(Fault(start=start), rule=Rule(name="momentum"), replicas=2)
    finding = judge(evidence).findings[0]
    assert finding.step == INITIAL
    outcome = finding.outcome
    assert outcome is not None
    assert (outcome.phase, outcome.step) == ("variable", 0)
    assert math.isnan(outcome.observed)
    keyed = evidence.reference.select(step=0, variable=outcome.variable, replica=WHOLE)
    value = next(value for key, value in keyed if key.phase == "variable")
    assert float(value[outcome.element]) == outcome.expected
    assert 0 < outcome.bound < abs(outcome.expected)


def test_a_right_run_names_no_number():
    assert not judge(observe(Fault(), replicas=2, steps=2)).findings


def make_outcome(**changes) -> Outcome:
    settings = {
        "phase": "variable",
        "step": 0,
        "variable": "kernel",
        "index": 0,
        "element": (1, 1),
        "replica": 0,
        "expected": 2.0,
        "observed": math.inf,
        "bound": 1e-6,
        **changes,
    }
    return Outcome(**settings)


def test_an_outcome_and_a_setup_survive_json():
    run = make_run(
        Status.FAIL,
        findings=(make_finding(outcome=make_outcome()), make_finding()),
        setup={"seed": 1, "split": [5, 3], "keras": None},
    )
    verdict = make_verdict(run)
    assert verdict_from_json(verdict_to_json(verdict)) == verdict


def test_a_verdict_of_before_can_be_read():
    document = json.loads(
        verdict_to_json(make_verdict(make_run(findings=(make_finding(),))))
    )
    for run in document["runs"]:
        del run["setup"]
        for finding in run["findings"]:
            del finding["outcome"]
    read = verdict_from_json(json.dumps(document))
    assert [finding.outcome for finding in read.findings] == [None]
    assert read.runs[0].setup == {}
