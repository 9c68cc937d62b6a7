"""Trained variables whose aggregation adds up all that each replica assigns."""

from __future__ import annotations

from dataclasses import replace

import pytest
from evidence_changes import change_evidence
from hidden_sums import feed, hide_sums
from simulated_rule import Rule
from test_diagnose_by_hand import Clipping
from training_simulator import TRAINED, Fault, observe

from distbench.diagnose.judge import judge

LINEAR, BENT = Rule(), Clipping()


def assign_own(new, old, applied, run):
    """Each assigns what it makes of its own gradient."""
    made = [run.rule.update(old, run.rule.transform(own)) for own in run.locals]
    return {**new, **{path: sum(one[path] for one in made) for path in TRAINED}}


def assign_alike(new, old, applied, run):
    """Each assigns what it makes of the sum."""
    return {**new, **{path: len(run.locals) * new[path] for path in TRAINED}}


def judge_assigned(assign, rule=LINEAR, *, adds_up=True):
    seen = observe(Fault(update=assign), replicas=3, rule=rule, shards_known=False)
    hidden = hide_sums(seen)
    variables = tuple(
        replace(v, adds_up=adds_up and v.path in TRAINED)
        for v in hidden.observed.variables
    )
    sums = tuple(feed(hidden, f"replica-{r}", rule, rule.transform) for r in range(3))
    hidden = change_evidence(
        hidden, sums=sums, observed=replace(hidden.observed, variables=variables)
    )
    return judge(hidden).findings[0]


@pytest.mark.parametrize("rule", [LINEAR, BENT], ids=["linear", "bent"])
def test_old_values_with_own_steps_are_no_decay(rule):
    found = judge_assigned(assign_own, rule)
    assert (found.code, found.phase, found.ratio) == ("scale-error", "variable", 3)
    assert set(found.variables) == set(TRAINED)
    assert "adds up what the replicas assign" in found.explanation
    assert "assign_add" in found.explanation
    assert found.confidence > 0.999


def test_what_all_assign_alike_is_n_times_as_large():
    found = judge_assigned(assign_alike)
    assert (found.code, found.phase, found.ratio) == ("scale-error", "variable", 3)
    assert "holds 3 times what it should" in found.explanation
    assert "has aggregation MEAN" in found.explanation


@pytest.mark.parametrize("assign", [assign_own, assign_alike])
def test_what_no_aggregation_adds_up_is_not_said_to_be(assign):
    found = judge_assigned(assign, adds_up=False)
    assert "adds up what the replicas assign" not in found.explanation
