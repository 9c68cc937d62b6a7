"""Another number below the fraction of a step."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from training_simulator import TRAINED, Fault, Rule, observe
from wrong_steps import take_rule

from distbench.diagnose.judge import judge


@dataclass(frozen=True, kw_only=True)
class Divided(Rule):
    """Adam with its number below the fraction, or below the root in it."""

    name: str = "adam"
    epsilon: float = 1e-3
    under_root: bool = False

    def update(self, state, gradients):
        new = super().update(state, gradients)
        for path in TRAINED:
            m, v = new[f"m/{path}"], new[f"v/{path}"]
            e = np.float32(self.epsilon)
            below = np.sqrt(v + e) if self.under_root else np.sqrt(v) + e
            new[path] = (state[path] - np.float32(self.rate) * m / below).astype("f4")
        return new


def judge_changed(rule, **changes):
    """What is said where the cluster has another rule than one device."""
    fault = Fault(update=take_rule(replace(rule, **changes)))
    return judge(observe(fault, rule=rule, steps=3)).findings


@pytest.mark.parametrize(
    ("under_root", "epsilon", "words"),
    [
        (False, 2e-3, "divided by is larger by the same number"),
        (False, 5e-4, "divided by is smaller by the same number"),
        (True, 4e-3, "divided by is, below the root, larger by the same number"),
    ],
    ids=["twice", "half", "below-the-root"],
)
def test_another_epsilon_is_told(under_root, epsilon, words):
    rule = Divided(under_root=under_root)
    (finding,) = judge_changed(rule, epsilon=epsilon)
    assert (finding.code, finding.phase) == ("hyperparameter-differs", "variable")
    assert words in finding.explanation
    assert finding.confidence > 0.999


def test_no_epsilon_is_told_where_the_root_is_another():
    for finding in judge_changed(Divided(), under_root=True, epsilon=0.01):
        assert "epsilon" not in finding.explanation
