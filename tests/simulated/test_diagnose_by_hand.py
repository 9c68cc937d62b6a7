"""Sums that nobody saw, told by the state that one device comes to after them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from evidence_changes import change_evidence
from gradient_values import add_up, map_values, scale, to_array
from hidden_sums import WAYS, feed, hide_sums
from judged_runs import MEAN
from planted_case import check_passed
from simulated_rule import Rule
from training_simulator import TRAINED, Fault, observe
from wrong_steps import each

from distbench.diagnose.judge import judge
from distbench.trace import WHOLE
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
    return judge(change_evidence(hidden, sums=sums))


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


@pytest.mark.parametrize("known", [3, 2])
def test_a_sum_that_nobody_makes_is_told_by_each_ones_own_step(known):
    """One device says what each replica's gradient leads to, if it was asked of all."""
    fault = Fault(reduce=lambda own, step: list(own))
    seen = observe(fault, replicas=3, rule=RULE, shards_known=False, steps=2)
    hidden = hide_sums(seen)
    ways = ("mean", *(f"replica-{r}" for r in range(known)))
    sums = tuple(feed(hidden, way, RULE, RULE.transform) for way in ways)
    first = judge(change_evidence(hidden, sums=sums)).findings[0]
    told = (first.code, first.phase) == ("missing-reduction", "variable")
    assert told == (known == 3), first.explanation


def test_a_variable_of_which_no_fed_sum_tells_is_judged_as_well():
    rule = Clipping()
    fault = Fault(reduce=each(lambda v: scale(v, 0.3)))
    seen = observe(fault, replicas=3, rule=rule, shards_known=False)
    hidden = hide_sums(seen)
    sums = []
    for way in ("replica-0", "replica-1", "replica-2"):
        fed = feed(hidden, way, rule, rule.transform)
        values = {k: v for k, v in fed.values.items() if k.variable != TRAINED[0]}
        sums.append(replace(fed, values=values))
    findings = judge(change_evidence(hidden, sums=tuple(sums))).findings
    assert {name for f in findings for name in f.variables} == set(TRAINED)


def test_a_right_sum_needs_no_other():
    check_passed(judge_hidden(add_up, ways=()))


@pytest.mark.parametrize(
    ("reduce", "code", "replicas"),
    [
        (lambda locals_, step: list(locals_), "missing-reduction", (0, 1, 2)),
        (
            lambda locals_, step: [add_up([locals_[0], locals_[2]])] * 3,
            "replica-dropped",
            (1,),
        ),
        (MEAN, "mean-instead-of-sum", (0, 1, 2)),
    ],
    ids=["nobody-sums", "one-is-dropped", "averaged"],
)
def test_a_sum_by_hand_that_was_not_seen_is_told_by_the_step(reduce, code, replicas):
    evidence = hide_sums(observe(Fault(reduce=reduce), replicas=3, shards_known=False))
    first = judge(evidence).findings[0]
    assert (first.code, first.phase) == (code, "variable")
    assert first.replicas == replicas
    assert set(first.variables) == set(TRAINED)


def flatten(gradients):
    return np.concatenate([to_array(gradients[path]).ravel() for path in TRAINED])


@pytest.mark.first(1)
@pytest.mark.parametrize(
    ("rule", "phase"),
    [
        (Rule(name="momentum"), "variable"),
        (Rule(name="adam"), "variable"),
        (Rule(statistic=flatten), "slot"),
    ],
    ids=["momentum", "adam", "one-slot-of-all"],
)
def test_a_mean_by_hand_is_told_by_what_the_slots_take(rule, phase):
    evidence = observe(Fault(reduce=MEAN), replicas=3, rule=rule, shards_known=False)
    first = judge(hide_sums(evidence)).findings[0]
    assert (first.code, first.phase) == ("mean-instead-of-sum", phase)
    assert first.confidence > 0.999


def feed_apart(evidence, rule):
    """What one device makes of each replica's own gradients."""
    values = {}
    for replica in range(3):
        own = feed(evidence, f"replica-{replica}", rule, rule.transform)
        values |= {key.at(replica): value for key, value in own.values.items()}
    return replace(evidence.reference, values=values, notes={})


@pytest.mark.parametrize(
    ("is_mean_of_variable", "phase"),
    [(True, "variable"), (False, "slot")],
    ids=["also-of-the-variable", "of-the-slot-alone"],
)
def test_a_mean_is_told_where_one_device_was_fed_with_own_gradients(
    is_mean_of_variable, phase
):
    """The mean of what it makes of each is the same, as momentum is linear."""
    rule = Rule(name="momentum")
    evidence = hide_sums(observe(Fault(reduce=MEAN), replicas=3, rule=rule))
    evidence = change_evidence(evidence, shards_known=False)
    right = evidence.reference.values
    if not is_mean_of_variable:
        values = {
            key: right[key.at(WHOLE)] if key.phase == "variable" else value
            for key, value in evidence.observed.values.items()
        }
        evidence = replace(evidence, observed=replace(evidence.observed, values=values))
    sums = tuple(feed(evidence, way, rule, rule.transform) for way in WAYS)
    apart = feed_apart(evidence, rule)
    first = judge(change_evidence(evidence, sums=sums, apart=apart)).findings[0]
    assert (first.code, first.phase) == ("mean-instead-of-sum", phase)


def hide_own(trace):
    """A trace in which nobody saw the gradients of a replica."""
    values = {
        key: value
        for key, value in trace.values.items()
        if key.phase != "local_gradient" or key.replica == WHOLE
    }
    return replace(trace, values=values)


@pytest.mark.parametrize(
    ("reduce", "code"),
    [
        (MEAN, "mean-instead-of-sum"),
        (each(lambda v: scale(v, 0.5)), "hyperparameter-differs"),
    ],
    ids=["averaged", "halved"],
)
def test_a_mean_of_what_nobody_saw_is_told_by_the_length_of_the_step(reduce, code):
    evidence = hide_sums(observe(Fault(reduce=reduce), replicas=3))
    first = judge(
        replace(
            evidence,
            observed=hide_own(evidence.observed),
            reference=hide_own(evidence.reference),
        )
    ).findings[0]
    assert (first.code, first.phase) == (code, "variable")
    assert set(first.variables) == set(TRAINED)


def test_a_sum_by_hand_passes():
    check_passed(judge(hide_sums(observe(replicas=3, shards_known=False))))
