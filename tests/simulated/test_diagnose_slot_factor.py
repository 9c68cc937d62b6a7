"""How much of its gradient and of its old value a slot takes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from evidence_changes import change_evidence
from gradient_values import scale, to_array
from simulated_rule import Rule
from training_simulator import TRAINED, Fault, observe
from wrong_steps import take_rule

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


@pytest.mark.parametrize("beta", [0.75, 0.0])
def test_a_linear_slot_that_takes_the_mean_takes_a_factor(beta):
    """What it would make of the replicas' own gradients is the same on average."""
    rule = Rule(name="momentum", beta=beta)

    def update(new, old, gradients, run):
        return rule.update(old, {k: scale(g, 0.5) for k, g in gradients.items()})

    evidence = observe(Fault(update=update), rule=rule, steps=2, replicas=2)
    own = {}
    for key, gradient in evidence.observed.select(phase="local_gradient"):
        path = f"momentum/{key.variable}"
        before = evidence.get_before(key.step, "slot", path)
        own[replace(key, phase="slot", variable=path)] = rule.beta * before + to_array(
            gradient
        )
    apart = replace(evidence.reference, values=own)
    (finding,) = judge(change_evidence(evidence, apart=apart)).findings
    assert (finding.code, finding.phase) == ("scale-error", "slot")
    assert finding.ratio == pytest.approx(0.5, rel=1e-5)
    assert "takes 0.5 times the gradient: 1/N, for N = 2" in finding.explanation


@dataclass(frozen=True, kw_only=True)
class Moments(Rule):
    """Two averages of what is no power of the gradient: it, and its square."""

    times: tuple[float, float] = (1.0, 1.0)

    def update(self, state, gradients):
        new = super().update(state, gradients)
        for path, gradient in gradients.items():
            taken, (first, second) = np.tanh(3 * to_array(gradient)), self.times
            m, v = state[f"m/{path}"], state[f"v/{path}"]
            new[f"m/{path}"] = m + np.float32(0.25) * (np.float32(first) * taken - m)
            squares = np.float32(second) * taken**2
            new[f"v/{path}"] = v + np.float32(0.25) * (squares - v)
        return new


@pytest.mark.parametrize(
    ("times", "ratio"), [((0.5, 0.25), 0.5), ((3, 9), 3)], ids=["half", "thrice"]
)
def test_a_factor_and_its_square_are_one_cause(times, ratio):
    rule = Moments(name="adam")
    fault = Fault(update=take_rule(replace(rule, times=times)))
    evidence = observe(fault, rule=rule, steps=3, replicas=2)
    (finding,) = judge(evidence).findings
    assert (finding.code, finding.phase) == ("scale-error", "slot")
    assert finding.ratio == pytest.approx(ratio, rel=1e-3)
    assert (
        "what is due, and the square of that where it keeps squares"
        in finding.explanation
    )


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
    fault = Fault(update=take_rule(replace(rule, beta=0.4 * times)))
    evidence = observe(fault, rule=rule, steps=3, replicas=3)
    (finding,) = judge(evidence).findings
    assert (finding.code, finding.phase, finding.step) == (code, "slot", 1)
    assert words in finding.explanation
