"""Sums that nobody saw, told by the state that one device comes to after them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hidden_sums import WAYS, feed, hide_sums
from planted_case import check_passed
from training_simulator import (
    Fault,
    Rule,
    add_up,
    map_values,
    observe,
)

from distbench.diagnose.judge import judge
from distbench.verdict import Status


class Clipping(Rule):
    """Clips by elements: no slot is in proportion to a sum, and no fit tells it."""

    def transform(self, gradients):
        return {
            path: map_values(value, lambda array: np.clip(array, -0.5, 0.5))
            for path, value in gradients.items()
        }


RULE = Clipping(name="adam")


def judge_hidden(combine, ways=tuple(WAYS)):
    def reduce(own, step):
        return [combine(own)] * 3

    fault = Fault(reduce=reduce)
    seen = observe(fault, replicas=3, rule=RULE, shards_known=False, steps=2)
    hidden = hide_sums(seen)
    sums = tuple(feed(hidden, way, RULE, RULE.transform) for way in ways)
    return judge(replace(hidden, sums=sums))


@pytest.mark.parametrize(
    ("way", "code", "replicas"),
    [
        ("mean", "mean-instead-of-sum", (0, 1, 2)),
        ("thrice", "double-reduction", (0, 1, 2)),
        ("two", "replica-dropped", (1,)),
    ],
)
def test_a_wrong_sum_before_any_rule_is_told(way, code, replicas):
    (finding,) = judge_hidden(WAYS[way][0]).findings
    assert (finding.code, finding.phase) == (code, "variable")
    assert finding.replicas == replicas
    assert finding.confidence > 0.999


def test_a_narrow_sum_before_any_rule_is_a_warning():
    judgement = judge_hidden(WAYS["half"][0])
    (finding,) = judgement.findings
    assert (finding.code, judgement.status) == ("lower-precision", Status.PASS)


def test_what_only_lies_near_a_narrow_sum_is_none():
    """It lies as near to the right one, and has not the digits that follow."""

    def combine(own):
        return {
            path: map_values(value, lambda array: array * (1 + 2.0**-12))
            for path, value in add_up(own).items()
        }

    judgement = judge_hidden(combine, ways=("half",))
    assert judgement.status is Status.FAIL
    assert "lower-precision" not in {f.code for f in judgement.findings}


def test_a_right_sum_needs_no_other():
    check_passed(judge_hidden(add_up, ways=()))
