"""Sums that nobody saw, read off state that they move in proportion."""

from __future__ import annotations

import numpy as np
import pytest
from evidence_changes import change_evidence
from gradient_values import add_up, clip_norm, map_values, scale, to_array
from hidden_sums import WAYS, feed, hide_sums
from simulated_rule import Rule
from training_simulator import Fault, observe
from wrong_steps import each

from distbench.diagnose.judge import judge

RULES = [Rule(), Rule(name="momentum"), Rule(name="adam")]


def clip_elements(value):
    return map_values(value, lambda array: np.clip(array, -0.1, 0.1))


def clip_tensor(value):
    return clip_norm(value, 0.2)


def squash(value):
    return map_values(value, lambda array: np.arctan(3 * array).astype(array.dtype))


def drop_half(value):
    array = to_array(value)
    return np.where(np.abs(array) >= np.median(np.abs(array)), array, 0 * array)


def keep(value):
    return value


def judge_hidden(sent, alone, rule=RULES[0], change=keep):
    """What is said where replicas send this, and one device does that to the sum."""

    def do_alone(gradients):
        return {path: alone(value) for path, value in gradients.items()}

    def update(new, old, gradients, run):
        return change(new)

    seen = observe(
        Fault(reduce=each(sent), update=update),
        replicas=3,
        rule=rule,
        alone=do_alone,
        shards_known=False,
        sparse=False,
    )
    hidden = hide_sums(seen)
    sums = tuple(feed(hidden, way, rule, do_alone) for way in WAYS)
    return judge(change_evidence(hidden, sums=sums)).findings


@pytest.mark.first(3)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
@pytest.mark.parametrize(
    ("sent", "alone", "code"),
    [
        (clip_tensor, clip_tensor, "clip-before-reduction"),
        (clip_elements, clip_elements, "clip-before-reduction"),
        (clip_tensor, keep, "clip-before-reduction"),
        (squash, squash, "nonlinear-before-reduction"),
        (drop_half, keep, "nonlinear-before-reduction"),
    ],
    ids=["clip", "elements", "clip-of-replicas-alone", "any-function", "mask"],
)
def test_what_is_done_before_a_sum_by_hand_is_told(sent, alone, code, rule):
    (finding,) = judge_hidden(sent, alone, rule)
    assert (finding.code, finding.phase, finding.step) == (code, "variable", 0)
    assert finding.confidence > 0.999
    assert finding.replicas == (0, 1, 2)


@pytest.mark.parametrize("rule", RULES[:2], ids=lambda rule: rule.name)
def test_no_sum_is_told_where_the_rule_is_another(rule):
    def move(new):
        return {k: v + v.dtype.type(0.01) * v**3 for k, v in new.items()}

    for finding in judge_hidden(clip_tensor, clip_tensor, rule, move):
        assert finding.code != "clip-before-reduction"


@pytest.mark.first(1)
@pytest.mark.parametrize("weight", [2.0, 0.5])
def test_a_replica_that_weighs_otherwise_is_not_dropped(weight):
    rule = RULES[1]

    def reduce(locals_, step):
        first = {path: scale(value, weight) for path, value in locals_[0].items()}
        return [add_up([first, *locals_[1:]])] * 3

    seen = observe(
        Fault(reduce=reduce), replicas=3, rule=rule, shards_known=False, sparse=False
    )
    hidden = hide_sums(seen)
    sums = tuple(feed(hidden, way, rule, dict) for way in WAYS)
    (finding,) = judge(change_evidence(hidden, sums=sums)).findings
    assert (finding.code, finding.replicas) == ("scale-error", (0,))
    assert f"weigh {weight:g}, 1, 1 in place of 1 each" in finding.explanation
