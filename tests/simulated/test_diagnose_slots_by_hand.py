"""Slots of an update by hand: whether they alone took a wrong gradient, or all did."""

from __future__ import annotations

import numpy as np
import pytest
from evidence_changes import change_evidence
from gradient_values import add_up, to_array
from hidden_sums import WAYS, feed, hide_sums
from simulated_rule import Rule
from training_simulator import TRAINED, Fault, observe
from wrong_steps import repeat

from distbench.diagnose.judge import judge

RULE = Rule(name="adagrad")
"""A step that is divided by the root of what its only slot adds up."""
SLOTS = {f"sum/{path}" for path in TRAINED}


def judge_hidden(fault):
    """What is said of a program that sums by hand; one device was fed with sums."""
    seen = observe(fault, replicas=3, rule=RULE, shards_known=False, steps=2)
    hidden = hide_sums(seen)
    sums = tuple(feed(hidden, way, RULE, RULE.transform) for way in WAYS)
    return judge(change_evidence(hidden, sums=sums))


def fill_slots(choose):
    """A step of the right sum, divided by slots that take another gradient."""

    def update(new, old, gradients, run):
        other = {p: to_array(v) for p, v in choose(run.locals, run.replica).items()}
        wrong = run.rule.update(old, other)
        state = {**new, **{slot: wrong[slot] for slot in SLOTS}}
        for path in TRAINED:
            below = np.sqrt(state[f"sum/{path}"]) + np.float32(1e-3)
            step = to_array(gradients[path]) / below
            state[path] = (old[path] - np.float32(run.rule.rate) * step).astype("f4")
        return state

    return Fault(update=update)


def find_errors(judgement, phase):
    found = [c for c in judgement.compared if (c.phase, c.step) == (phase, 0)]
    return {c.error for c in found if c.error > 0}


@pytest.mark.parametrize(
    ("choose", "code"),
    [
        (lambda own, replica: own[replica], "slot-from-local-gradient"),
        (lambda own, _: own[0], "slot-from-local-gradient"),
        (lambda own, _: own[2], "slot-from-local-gradient"),
        (lambda own, _: add_up([own[0], own[2]]), "replica-dropped"),
    ],
    ids=["own", "first", "last", "all-but-one"],
)
def test_a_wrong_slot_beside_a_right_sum_is_the_slots(choose, code):
    judgement = judge_hidden(fill_slots(choose))
    (finding,) = judgement.findings
    assert (finding.code, finding.phase) == (code, "slot"), finding.explanation
    assert set(finding.variables) == SLOTS
    assert finding.error in find_errors(judgement, "slot")


@pytest.mark.parametrize(
    ("reduce", "code"),
    [
        (lambda own, _: list(own), "missing-reduction"),
        (lambda own, _: [own[0]] * 3, "replica-dropped"),
    ],
    ids=["own", "first"],
)
def test_where_all_take_it_the_numbers_are_of_the_variables(reduce, code):
    judgement = judge_hidden(Fault(reduce=reduce))
    (finding,) = judgement.findings
    assert (finding.code, finding.phase) == (code, "variable"), finding.explanation
    assert set(finding.variables) == set(TRAINED)
    assert finding.error in find_errors(judgement, "variable")
    assert finding.error not in find_errors(judgement, "slot")


def test_the_numbers_of_a_repeated_update_are_of_the_variables():
    """Slots show it first, and whether it is the whole update the variables tell."""
    judgement = judge(observe(Fault(update=repeat(2)), rule=Rule(name="adam")))
    finding = judgement.findings[0]
    assert (finding.code, finding.phase) == ("update-repeated", "variable")
    assert finding.error in find_errors(judgement, "variable")
    assert finding.error not in find_errors(judgement, "slot")
