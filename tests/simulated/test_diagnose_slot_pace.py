"""Slots that go farther in each step, whatever they take: another decay."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from gradient_values import to_array
from simulated_rule import Rule
from wrong_steps import find_in_slots


@dataclass(frozen=True, kw_only=True)
class Forgetting(Rule):
    """An average, by the count of steps, of what no power of the gradient is."""

    exponent: float = 0.8
    off: float = 0.0

    def update(self, state, gradients):
        new = dict(state)
        share = np.float32((1.0 + int(state["iterations"])) ** -self.exponent)
        for path, gradient in gradients.items():
            old, taken = state[f"momentum/{path}"], np.tanh(3 * to_array(gradient))
            taken = taken + np.float32(self.off) * taken**2
            new[f"momentum/{path}"] = (1 - share) * old + share * taken
            step = np.float32(self.rate) * new[f"momentum/{path}"]
            new[path] = (state[path] - step).astype(state[path].dtype)
        new["iterations"] = state["iterations"] + 1
        return new


RULE = Forgetting(name="momentum")


@pytest.mark.parametrize("exponent", [0.4, 0.6])
def test_a_decay_that_follows_another_count_is_told(exponent):
    found = find_in_slots(replace(RULE, exponent=exponent), RULE)
    assert (found.code, found.step) == ("hyperparameter-differs", 1)
    assert found.ratio == pytest.approx(2 ** (0.8 - exponent), rel=1e-4)
    assert "another decay" in found.explanation


def test_what_takes_something_else_goes_elsewhere():
    found = find_in_slots(replace(RULE, exponent=0.4, off=0.25), RULE)
    assert "another decay" not in found.explanation
