"""Slots that take what another one has accumulated, with a weight of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from gradient_values import to_array
from simulated_rule import Rule
from training_simulator import TRAINED
from wrong_steps import judge_rule


@dataclass(frozen=True, kw_only=True)
class Collecting(Rule):
    """Two moments take the mean of two steps' gradients; `carry` weighs the first."""

    carry: float = 1.0
    take: float = 1.0
    keeps: float = 1.0

    @property
    def slots(self):
        return ("collected", "m", "v")

    def update(self, state, gradients):
        new = dict(state)
        is_due = int(state["iterations"]) % 2 == 1
        for path, gradient in gradients.items():
            g = np.float32(self.take) * to_array(gradient)
            total = np.float32(self.carry) * state[f"collected/{path}"] + g
            new[f"collected/{path}"] = total * np.float32(self.keeps * (not is_due))
            if is_due:
                mean, m = total / np.float32(2), state[f"m/{path}"]
                v = state[f"v/{path}"]
                new[f"m/{path}"] = m + np.float32(0.25) * (mean - m)
                new[f"v/{path}"] = v + np.float32(0.25) * (mean**2 - v)
                new[path] = state[path] - np.float32(self.rate) * new[f"m/{path}"]
        new["iterations"] = state["iterations"] + 1
        return new


RULE = Collecting(name="adam")


def judge_update(rule, replicas=2):
    """With another rule on the cluster than on one device."""
    return judge_rule(rule, RULE, steps=4, replicas=replicas, sparse=False)


@pytest.mark.parametrize(
    ("carry", "words"), [(0.5, "0.5 times"), (2.0, "2 times"), (0.0, "nothing of")]
)
def test_another_weight_of_what_is_carried_over_is_told(carry, words):
    (finding,) = judge_update(replace(RULE, carry=carry))
    assert (finding.code, finding.phase, finding.step) == ("scale-error", "slot", 1)
    assert finding.ratio == pytest.approx(carry, abs=1e-4)
    assert len(finding.variables) == 2 * len(TRAINED)
    assert f"beside it {words} what another slot" in finding.explanation


def test_a_gradient_that_is_off_as_well_is_something_else():
    found = judge_update(replace(RULE, carry=0.5, take=0.75))
    assert all("another slot" not in finding.explanation for finding in found)


def test_an_accumulator_that_is_wrong_itself_is_told_alone():
    found = judge_update(replace(RULE, carry=0.5, keeps=0.5))
    assert all("another slot" not in finding.explanation for finding in found)
    assert "collected" in found[0].variable
