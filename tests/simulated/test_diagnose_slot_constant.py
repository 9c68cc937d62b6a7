"""Slots whose rule adds another constant: an epsilon of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from gradient_values import to_array
from simulated_rule import Rule
from wrong_steps import find_in_slots


@dataclass(frozen=True, kw_only=True)
class Believing(Rule):
    """An average of squares of what is no power of the gradient, and a constant."""

    epsilon: float = 0.1
    slope: float = 0.0

    def update(self, state, gradients):
        new = dict(state)
        for path, gradient in gradients.items():
            old, taken = state[f"momentum/{path}"], np.tanh(3 * to_array(gradient))
            squares = np.float32(0.25) * taken**2
            more = np.float32(self.epsilon) + np.float32(self.slope) * taken**4
            new[f"momentum/{path}"] = np.float32(0.75) * old + squares + more
            step = np.float32(self.rate) * taken / np.sqrt(new[f"momentum/{path}"])
            new[path] = (state[path] - step).astype(state[path].dtype)
        new["iterations"] = state["iterations"] + 1
        return new


RULE = Believing(name="momentum", epsilon=0.1)


@pytest.mark.parametrize("epsilon", [0.05, 0.2])
def test_another_constant_is_told(epsilon):
    found = find_in_slots(replace(RULE, epsilon=epsilon), RULE)
    assert found.code == "hyperparameter-differs"
    assert f"off by the same {epsilon - 0.1:+g}, whatever" in found.explanation
    assert found.confidence == pytest.approx(1)


def test_what_moves_with_the_gradient_is_no_constant():
    found = find_in_slots(replace(RULE, slope=0.01), RULE)
    assert "another constant" not in found.explanation
