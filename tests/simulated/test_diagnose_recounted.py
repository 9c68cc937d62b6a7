"""Rules that count the replicas in a sum that has all their parts."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from gradient_values import to_array
from training_simulator import TRAINED, Fault, Rule, observe

from distbench.diagnose.judge import judge

N = 3
F = np.float32


@dataclass(frozen=True, kw_only=True)
class Blending(Rule):
    """What is squashed is made of the old momentum and the gradient."""

    name: str = "momentum"

    def update(self, state, gradients):
        new = super().update(state, gradients)
        for path, value in gradients.items():
            way = state[f"momentum/{path}"] + to_array(value).astype(F)
            way = np.tanh(way)
            new[path] = (state[path] - F(self.rate) * way).astype(F)
        return new


@dataclass(frozen=True, kw_only=True)
class Squashing(Rule):
    """Steps are squashed into a range that is narrower the more replicas there are."""

    name: str = "momentum"
    replicas: int = 1

    def told(self, replicas):
        return replace(self, replicas=replicas)

    def update(self, state, gradients):
        new = super().update(state, gradients)
        for path in gradients:
            most = F(0.5 / self.replicas)
            step = most * np.tanh(new[f"momentum/{path}"] / most)
            new[path] = (state[path] - F(self.rate) * step).astype(F)
        return new


@pytest.mark.parametrize(
    ("factor", "code", "ratio"),
    [(1 / N, "mean-instead-of-sum", 1 / N), (N, "double-reduction", N)],
    ids=["mean", "many"],
)
def test_a_share_of_the_sum_beside_a_momentum_that_has_all_of_it(
    factor: float, code: str, ratio: float
) -> None:
    rule = Blending()

    def update(new, old, gradients, run):
        scaled = {path: F(factor) * to_array(g) for path, g in gradients.items()}
        other = rule.update(old, scaled)
        return {**new, **{path: other[path] for path in gradients}}

    (finding,) = judge(
        observe(Fault(update=update), rule=rule, steps=4, replicas=N)
    ).findings
    assert (finding.code, finding.phase, finding.step) == (code, "variable", 0)
    assert finding.ratio == pytest.approx(ratio)
    assert len(finding.variables) == len(TRAINED)


def test_a_rule_that_asks_for_the_number_of_replicas() -> None:
    rule = Squashing()

    def update(new, old, gradients, run):
        return rule.told(N).update(old, gradients)

    (finding,) = judge(
        observe(Fault(update=update), rule=rule, steps=4, replicas=N)
    ).findings
    assert (finding.code, finding.phase) == ("hyperparameter-differs", "variable")
    assert "num_replicas_in_sync" in finding.explanation
    assert len(finding.variables) == len(TRAINED)


def test_another_share_is_no_count_of_replicas() -> None:
    rule = Squashing()

    def update(new, old, gradients, run):
        return rule.told(7).update(old, gradients)

    found = judge(
        observe(Fault(update=update), rule=rule, steps=4, replicas=N)
    ).findings
    assert found
    assert not any("num_replicas_in_sync" in f.explanation for f in found)
