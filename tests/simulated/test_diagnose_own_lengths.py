"""Copies that take the right step, some of them times a number."""

from __future__ import annotations

import pytest
from test_diagnose_steps import Waiting
from training_simulator import TRAINED, Fault, Rule, observe

from distbench.diagnose.judge import judge

STEPS = range(3)


def judge_lengths(lengths, rule=None):
    """What is said of steps that are so many times as long, by step and replica."""

    def update(new, old, gradients, run):
        times = lengths.get((run.step, run.replica), 1.0)
        moved = {
            path: old[path] + (new[path] - old[path]) * old[path].dtype.type(times)
            for path in TRAINED
        }
        return {**new, **moved}

    evidence = observe(
        Fault(update=update), rule=rule or Rule(), steps=len(STEPS), replicas=3
    )
    return judge(evidence).findings[0]


@pytest.mark.parametrize(
    ("lengths", "replicas"),
    [
        pytest.param({(0, 1): 1.3, (1, 1): 1.2, (2, 1): 0.6}, (1,), id="one-replica"),
        pytest.param({(0, 1): 1.3, (0, 2): 0.7, (1, 1): 1.2}, (1, 2), id="two"),
        pytest.param({(0, 1): 0.5, (1, 0): 0.5}, (0, 1), id="in-turn"),
        pytest.param({(0, 1): 0.5, (2, 1): 0.5}, (1,), id="in-some-steps"),
    ],
)
def test_a_number_that_differs_by_replica_and_step_is_no_setting(lengths, replicas):
    found = judge_lengths(lengths)
    assert (found.code, found.phase) == ("replicas-diverged", "variable")
    assert found.replicas == replicas
    assert "differs by replica and step" in found.explanation


@pytest.mark.parametrize("rule", [Rule(), Waiting()], ids=["moves", "waits"])
def test_one_number_of_one_replica_is_a_setting(rule):
    """A step that moves nothing says nothing against it."""
    found = judge_lengths({(step, 1): 1.3 for step in STEPS}, rule)
    assert (found.code, found.replicas) == ("hyperparameter-differs", (1,))


def test_one_number_of_each_step_is_a_schedule():
    lengths = {(step, r): 1.5 - 0.3 * step for step in STEPS for r in range(3)}
    found = judge_lengths(lengths)
    assert (found.code, found.replicas) == ("hyperparameter-differs", (0, 1, 2))
