"""How much of its gradient and of its old value a slot takes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from gradient_values import scale, to_array
from simulated_rule import Rule
from training_simulator import TRAINED, Fault, observe

from distbench.diagnose.judge import judge


@dataclass(frozen=True, kw_only=True)
class Lazy(Rule):
    """Momentum that leaves elements as they are which have no gradient."""

    def update(self, state, gradients):
        new = super().update(state, gradients)
        for path, gradient in gradients.items():
            fed = to_array(gradient) != 0
            for name in (path, f"momentum/{path}"):
                new[name] = np.where(fed, new[name], state[name])
        return new


@pytest.mark.parametrize("factor", [2.0, 0.75])
def test_a_factor_is_told_where_rows_without_gradients_stay(factor):
    rule = Lazy(name="momentum", beta=0.9)

    def update(new, old, gradients, run):
        return rule.update(old, {k: scale(g, factor) for k, g in gradients.items()})

    evidence = observe(Fault(update=update), rule=rule, steps=3, examples=4)
    (finding,) = judge(evidence).findings
    assert (finding.code, finding.phase) == ("scale-error", "slot")
    assert len(finding.variables) == len(TRAINED)
    assert finding.ratio == pytest.approx(factor, rel=1e-5)
    assert f"takes {factor:g} times the gradient" in finding.explanation


@pytest.mark.parametrize("name", ["momentum", "adam"])
@pytest.mark.parametrize("factor", [-2.0, -1 / 3, 3.0])
def test_a_factor_of_the_gradient_has_a_sign(name, factor):
    rule = Rule(name=name)

    def update(new, old, gradients, run):
        return rule.update(old, {k: scale(g, factor) for k, g in gradients.items()})

    evidence = observe(Fault(update=update), rule=rule, steps=3, replicas=3)
    (finding,) = judge(evidence).findings
    assert (finding.code, finding.phase) == ("scale-error", "slot")
    assert finding.ratio == pytest.approx(factor, rel=1e-3)
    assert f"takes {factor:.3g}" in finding.explanation


@pytest.mark.parametrize(
    ("times", "code", "words"),
    [
        (3, "momentum-repeated", "3 times as much: N = 3, as where each replica adds"),
        (2, "momentum-repeated", "weighs its old value 2 times as much"),
        (0.5, "hyperparameter-differs", "weighs its old value 0.5 times as much"),
    ],
    ids=["as-many-as-replicas", "twice", "half"],
)
def test_an_old_value_that_weighs_more_is_told(times, code, words):
    rule = Rule(name="momentum", beta=0.4)

    def update(new, old, gradients, run):
        return replace(rule, beta=0.4 * times).update(old, gradients)

    evidence = observe(Fault(update=update), rule=rule, steps=3, replicas=3)
    (finding,) = judge(evidence).findings
    assert (finding.code, finding.phase, finding.step) == (code, "slot", 1)
    assert words in finding.explanation
