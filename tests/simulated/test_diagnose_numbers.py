"""Numbers that the rule is given, and the slots that follow from them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from evidence_changes import change_evidence
from gradient_values import to_array
from planted_case import MOMENTUM
from simulated_rule import Rule
from training_simulator import KERNEL, TRAINED, Fault, observe
from wrong_steps import add_state

from distbench.diagnose.judge import judge
from distbench.trace import INITIAL, WHOLE, TraceKey, VariableInfo

SLOT = f"momentum/{KERNEL}"


def add_rate(trace, values, role="slot"):
    """Add a number without a variable to a trace, by step and replica."""
    rate = VariableInfo(path="rate", role=role, shape=(), dtype="float32")
    found = {
        TraceKey(step=step, phase=role, variable="rate", replica=r): np.array(v, "f4")
        for (step, r), v in values.items()
    }
    variables = (*trace.variables, rate)
    return replace(trace, variables=variables, values={**trace.values, **found})


@pytest.mark.parametrize(
    ("seen", "code"),
    [
        pytest.param({0: 0.2, 1: 0.2}, "hyperparameter-differs", id="equal"),
        pytest.param({0: 0.2, 1: 0.3}, "slot-not-synchronized", id="apart"),
    ],
)
def test_a_number_that_becomes_another_is_told_before_the_slots_that_follow(seen, code):
    def bend(k, v, old, run):
        # No rule that is known bends a slot so.
        return v * (1 + np.cos(np.arange(v.size)).reshape(v.shape)) if k == SLOT else v

    evidence = observe(Fault(update=add_state(bend)), steps=1, rule=MOMENTUM)
    assert judge(evidence).findings[0].code == "unexplained"
    start = {(INITIAL, r): 0.1 for r in (0, 1)}
    evidence = replace(
        evidence,
        observed=add_rate(
            evidence.observed, {**start, **{(0, r): v for r, v in seen.items()}}
        ),
        reference=add_rate(
            evidence.reference, {(INITIAL, WHOLE): 0.1, (0, WHOLE): 0.1}
        ),
        twins=tuple(add_rate(twin, {(0, WHOLE): 0.1}) for twin in evidence.twins),
    )
    first = judge(evidence).findings[0]
    assert (first.code, first.phase) == (code, "slot"), first
    assert "rate" in first.variables
    assert len(judge(evidence).findings) == 1


@pytest.mark.parametrize(
    ("wrong_in", "told"),
    [
        pytest.param((0, 1), ["update-repeated"], id="whenever-it-is-wrong"),
        pytest.param((1,), ["unexplained", "update-repeated"], id="before-it-is"),
    ],
)
def test_a_count_of_the_model_is_told_before_the_steps_that_follow(wrong_in, told):
    """A program that counts by itself may correct its steps by that number."""

    def bend(k, v, old, run):
        return v + np.cos(np.arange(v.size)).reshape(v.shape) if k == KERNEL else v

    evidence = observe(Fault(update=add_state(bend)), steps=2)
    due = {(step, r): step + 1.0 for step in (INITIAL, 0, 1) for r in (0, 1)}
    seen = {key: n + (key[0] in wrong_in) for key, n in due.items()}
    whole = {(step, WHOLE): step + 1.0 for step in (INITIAL, 0, 1)}
    evidence = replace(
        evidence,
        observed=add_rate(evidence.observed, seen, "variable"),
        reference=add_rate(evidence.reference, due | whole, "variable"),
        twins=tuple(add_rate(twin, whole, "variable") for twin in evidence.twins),
    )
    findings = judge(evidence).findings
    assert [f.code for f in findings] == told, findings
    assert "rate" in findings[-1].variables


@pytest.mark.parametrize(
    ("apart", "codes"),
    [
        pytest.param({0: 0.1, 1: 0.1}, set(), id="set"),
        pytest.param({0: 0.1, 1: 0.3}, {"scale-error"}, id="led"),
    ],
)
def test_a_rate_that_no_gradient_leads_is_told_alone(apart, codes):
    """Momentum that holds the rate takes N times what is due wherever that is wrong.

    Where a number follows from gradients, as one device shows that is fed with each
    replica's own, it may itself be made of what is wrong beside it.
    """

    def double(k, v, old, run):
        return v + (v - MOMENTUM.beta * old[k]) if k.startswith("momentum/") else v

    evidence = observe(Fault(update=add_state(double)), steps=2, rule=MOMENTUM)
    at, steps = (INITIAL, WHOLE), (0, 1)
    due = {at: 0.1, **{(step, WHOLE): 0.1 for step in steps}}
    seen = {(step, r): 0.2 for step in (INITIAL, *steps) for r in (0, 1)}
    fed = {(step, r): apart[r] for step in steps for r in (0, 1)}
    evidence = change_evidence(
        evidence,
        observed=add_rate(evidence.observed, seen),
        reference=add_rate(evidence.reference, due),
        apart=add_rate(replace(evidence.reference, values={}), fed),
        twins=tuple(add_rate(twin, due) for twin in evidence.twins),
    )
    start, *later = judge(evidence).findings
    assert (start.code, start.step) == ("hyperparameter-differs", INITIAL)
    assert start.code not in {f.code for f in later}  # it is the same mistake
    assert {f.code for f in later if SLOT in f.variables} == codes
    assert bool(later) == bool(codes)


class Scheduled(Rule):
    """Momentum that holds a learning rate, which may be another one in each step."""

    def update(self, state, gradients):
        rate = np.float32(self.rate * self.decay ** state["iterations"])
        new = {**state, "iterations": state["iterations"] + 1}
        for path, value in gradients.items():
            slot = f"momentum/{path}"
            taken = rate * to_array(value).astype(np.float32)
            new[slot] = np.float32(self.beta) * state[slot] - taken
            new[path] = state[path] + new[slot]
        return new


@pytest.mark.parametrize(
    ("decay", "code"),
    [(0.5, "hyperparameter-differs"), (1.0, "scale-error")],
    ids=["schedule", "one-rate"],
)
def test_a_schedule_that_is_n_times_as_large_is_told(decay, code):
    """Of a rate that never changes a slot does not tell it from another factor."""
    rule = Scheduled(name="momentum", decay=decay)

    def scale(new, old, gradients, run):
        for path in TRAINED:
            slot = f"momentum/{path}"
            due = new[slot] - rule.beta * old[slot]
            new = {**new, slot: new[slot] + due, path: new[path] + due}
        return new

    first = judge(observe(Fault(update=scale), steps=3, rule=rule)).findings[0]
    assert (first.code, first.phase) == (code, "slot")
    assert first.ratio == pytest.approx(2, rel=1e-3)
    assert ("schedule" in first.explanation) == (decay < 1)
