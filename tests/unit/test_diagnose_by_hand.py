"""Sums that nobody saw, told by the state that one device comes to after them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from planted_case import check_passed
from training_simulator import (
    TRAINED,
    Fault,
    Rule,
    add_up,
    map_values,
    observe,
    scale,
    to_array,
)

from distbench.diagnose.judge import judge
from distbench.trace import Phase, TraceKey
from distbench.verdict import Status


class Clipping(Rule):
    """Clips by elements: no slot is in proportion to a sum, and no fit tells it."""

    def transform(self, gradients):
        return {
            path: map_values(value, lambda array: np.clip(array, -0.5, 0.5))
            for path, value in gradients.items()
        }


RULE = Clipping(name="adam")
ROLES: tuple[Phase, ...] = ("slot", "variable")


def add_narrow(gradients, order):
    """A sum in float16, of which each partial sum is rounded."""
    found = {}
    for path in TRAINED:
        total = to_array(gradients[order[0]][path]).astype(np.float16)
        for replica in order[1:]:
            total = total + to_array(gradients[replica][path]).astype(np.float16)
        found[path] = total.astype(np.float32)
    return found


WAYS = {
    "mean": (
        lambda own: map_sum(add_up(own), 1 / 3),
        {"kept": [0, 1, 2], "factor": 1 / 3, "narrow": ""},
    ),
    "thrice": (
        lambda own: map_sum(add_up(own), 3.0),
        {"kept": [0, 1, 2], "factor": 3.0, "narrow": ""},
    ),
    "two": (
        lambda own: add_up([own[0], own[2]]),
        {"kept": [0, 2], "factor": 1.0, "narrow": ""},
    ),
    "half": (
        lambda own: add_narrow(own, (1, 2, 0)),
        {"kept": [1, 2, 0], "factor": 1.0, "narrow": "float16"},
    ),
}


def map_sum(gradients, factor):
    return {path: scale(value, factor) for path, value in gradients.items()}


def hide_sum(trace):
    """What is seen of a program that sums and updates by hand."""
    kept = {
        key: value
        for key, value in trace.values.items()
        if key.phase not in ("reduced_gradient", "applied_gradient")
    }
    return replace(trace, values=kept)


def feed(evidence, way):
    """The state that one device comes to after a sum of the replicas' gradients."""
    combine, notes = WAYS[way]
    reference, values = evidence.reference, {}
    for step in range(reference.steps):
        own = [
            {
                key.variable: value
                for key, value in evidence.observed.select(
                    step=step, phase="local_gradient", replica=replica
                )
            }
            for replica in range(3)
        ]
        before = {
            v.path: evidence.get_before(step, v.role, v.path)
            for v in reference.variables
        }
        after = RULE.update(before, RULE.transform(combine(own)))
        for v in reference.variables:
            key = TraceKey(step=step, phase=v.role, variable=v.path, replica=0)
            if v.role in ROLES:
                values[key] = after[v.path]
    return replace(reference, values=values, notes=notes)


def judge_hidden(combine, ways=tuple(WAYS)):
    def reduce(own, step):
        return [combine(own)] * 3

    fault = Fault(reduce=reduce)
    seen = observe(fault, replicas=3, rule=RULE, shards_known=False, steps=2)
    hidden = replace(
        seen,
        observed=hide_sum(seen.observed),
        reference=hide_sum(seen.reference),
        twins=tuple(map(hide_sum, seen.twins)),
        replays={},
        repeated=(),
    )
    return judge(replace(hidden, sums=tuple(feed(hidden, way) for way in ways)))


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
