"""A weight decay by hand, after the step: too often, in one copy, or not at all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gradient_values import add_up
from simulated_rule import Rule
from swept import swept
from training_simulator import TRAINED, Fault, Setup, Simulation, observe
from wrong_steps import add_state, add_to_each

from distbench.diagnose.judge import judge

_SHRINK = 0.05


def shrink_more(factor, replicas=(0, 1, 2)):
    """Every variable is that of the right step times a factor, in some copies."""
    return Fault(
        update=add_state(
            lambda k, v, old, run: (
                v * factor if k in TRAINED and run.replica in replicas else v
            )
        )
    )


@pytest.mark.first(4)
@pytest.mark.parametrize("name", ["sgd", *swept("momentum")])
@pytest.mark.parametrize(
    ("factor", "replicas", "code"),
    [
        ((1 - _SHRINK) ** 2, (0, 1, 2), "weight-decay-repeated"),
        ((1 - 3 * _SHRINK) / (1 - _SHRINK), (0, 1, 2), "weight-decay-repeated"),
        (1 - _SHRINK, (2,), "weight-decay-repeated"),
        (1 / (1 - _SHRINK), (0, 1, 2), "weight-decay-missing"),
        (1 / (1 - _SHRINK), (1,), "weight-decay-missing"),
        ((1 - 0.5 * _SHRINK) / (1 - _SHRINK), (0, 1, 2), "hyperparameter-differs"),
    ],
    ids=["in-turn", "times-n", "twice-in-one", "missing", "missing-in-one", "half"],
)
def test_a_decay_after_the_step_is_counted(name, factor, replicas, code):
    rule = Rule(name=name, shrink=_SHRINK)
    fault = shrink_more(factor, replicas)
    (finding,) = judge(observe(fault, replicas=3, rule=rule)).findings
    assert (finding.code, finding.phase) == (code, "variable")
    assert set(finding.variables) == set(TRAINED)
    assert finding.replicas == replicas
    assert finding.confidence > 0.999


@pytest.mark.parametrize(("factor", "name"), [(0.98, "repeated"), (1.02, "missing")])
def test_of_a_rule_that_is_not_known_the_direction_tells(factor, name):
    evidence = observe(shrink_more(factor), replicas=3, rule=Rule(name="adam"))
    (finding,) = judge(evidence).findings
    assert (finding.code, finding.phase) == (f"weight-decay-{name}", "variable")


def test_another_rate_from_zero_is_no_decay():
    """There is nothing to decay, and the step is a share of where it leads."""
    run = Simulation(Setup(rule=Rule(shrink=_SHRINK), steps=1))
    run.initial |= {path: np.zeros_like(run.initial[path]) for path in TRAINED}
    (finding,) = judge(run.observe(shrink_more(0.7))).findings
    assert finding.code == "hyperparameter-differs"


_START = Simulation(Setup(replicas=3, sparse=False)).initial


@pytest.mark.parametrize(
    ("added", "code"),
    [
        ({k: 0.05 * _START[k] for k in TRAINED}, "weight-decay-repeated"),
        ({k: 0.05 * np.sign(_START[k]) for k in TRAINED}, "weight-decay-repeated"),
        ({TRAINED[0]: 0.05 * _START[TRAINED[0]]}, "weight-decay-repeated"),
        ({k: np.full_like(_START[k], 0.1) for k in TRAINED}, "nonlinear-before-red"),
    ],
    ids=["decay", "signs", "one-variable", "constant"],
)
def test_what_one_device_adds_once_is_in_the_sum_n_times(added, code):
    """An optimizer that decays the gradients that it is given, before it sums."""
    add = add_to_each(added)
    setup = {"replicas": 3, "sparse": False, "alone": add, "steps": 1}
    fault = Fault(reduce=lambda ls, step: [add_up([add(g) for g in ls])] * len(ls))
    (finding,) = judge(observe(fault, **setup)).findings
    assert finding.code.startswith(code)
    assert (finding.phase, finding.replicas) == ("reduced_gradient", (0, 1, 2))
    assert set(finding.variables) == set(added)
    assert finding.ratio == 3
    assert "N = 3 times" in finding.explanation


def test_what_is_added_in_shares_passes():
    added = {k: 0.05 * _START[k] for k in TRAINED}
    share = add_to_each({k: v / 3 for k, v in added.items()})
    fault = Fault(reduce=lambda ls, step: [add_up([share(g) for g in ls])] * len(ls))
    setup = {"replicas": 3, "sparse": False, "alone": add_to_each(added), "steps": 1}
    assert judge(observe(fault, **setup)).findings == ()


_INNER = {
    "momentum": Rule(name="momentum", inner=0.1),
    "adam": Rule(name="adam", inner=0.1),
    "lars": Rule(name="lars", inner=0.1),
    "lamb": Rule(name="lamb", inner=0.1),
}


@pytest.mark.parametrize("name", _INNER)
def test_a_decay_within_a_rule_is_counted(name):
    """Behind a momentum, below a root or in a norm it is no share of the variable."""
    rule = _INNER[name]
    more = replace(rule, inner=3 * rule.inner)
    fault = Fault(update=lambda new, old, g, run: more.update(old, g))
    (finding,) = judge(observe(fault, replicas=3, rule=rule)).findings
    assert (finding.code, finding.phase) == ("weight-decay-repeated", "variable")
    assert set(finding.variables) == set(TRAINED)
    assert finding.ratio == 3
    assert finding.confidence > 0.999


@pytest.mark.parametrize("name", _INNER)
def test_a_decay_within_a_rule_passes(name):
    assert judge(observe(replicas=3, rule=_INNER[name])).findings == ()


@pytest.mark.parametrize("name", ["lars", "lamb"])
def test_a_trust_ratio_without_a_decay_has_other_causes(name):
    """Of variables N times as large it makes steps N times as long."""
    rule = Rule(name=name)
    fault = Fault(
        update=lambda new, old, g, run: replace(rule, rate=0.375).update(old, g)
    )
    findings = judge(observe(fault, replicas=3, rule=rule)).findings
    assert findings
    assert "weight-decay-repeated" not in {finding.code for finding in findings}
