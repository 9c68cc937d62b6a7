"""A weight decay by hand, after the step: too often, in one copy, or not at all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from evidence_changes import change_apart
from gradient_values import add_up, clip_norm, scale
from simulated_rule import Rule
from swept import swept
from training_simulator import TABLE, TRAINED, Fault, Setup, Simulation, observe
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


@pytest.mark.parametrize("replicas", [2, 3])
def test_an_nth_of_every_variable_is_a_mean_and_no_decay(replicas):
    fault = shrink_more(np.float32(1 / replicas), range(replicas))
    (finding,) = judge(observe(fault, replicas=replicas)).findings
    assert (finding.code, finding.phase) == ("mean-instead-of-sum", "variable")
    assert finding.confidence > 0.999


def take_signs(amount, replicas=(0, 1, 2)):
    """Every element is nearer to 0 than the right one by some amount, or farther."""

    def change(path, value, old, run):
        if path not in TRAINED or run.replica not in replicas:
            return value
        return value - (amount * np.sign(old[path])).astype(value.dtype)

    return Fault(update=add_state(change))


_TOWARDS_0 = 0.03


def threshold(amount):
    def cut(path, value):
        left = np.maximum(np.abs(value) - value.dtype.type(amount), 0)
        return (np.sign(value) * left).astype(value.dtype)

    return cut


@pytest.mark.parametrize("name", ["sgd", *swept("momentum")])
@pytest.mark.parametrize(
    ("times", "code"),
    [(3, "repeated"), (2, "repeated"), (0, "missing")],
)
@pytest.mark.parametrize("most", [_TOWARDS_0, *swept(0.4)])
def test_a_soft_threshold_is_counted(name, times, code, most):
    """The larger one reaches some elements: these are 0 after all of the steps."""
    rule = Rule(name=name, constraint=threshold(most))
    other = replace(rule, constraint=threshold(times * most))
    fault = Fault(update=lambda new, old, g, run: other.update(old, g))
    (finding,) = judge(observe(fault, replicas=3, rule=rule)).findings
    assert (finding.code, finding.phase) == (f"weight-decay-{code}", "variable")
    assert set(finding.variables) == set(TRAINED)
    assert finding.ratio == pytest.approx(times, rel=1e-3, abs=1e-3)
    assert finding.confidence > 0.999


@pytest.mark.parametrize(
    ("amount", "replicas", "code"),
    [
        (0.02, (0, 1, 2), "weight-decay-repeated"),
        (-0.02, (0, 1, 2), "weight-decay-missing"),
        (-0.02, (1,), "weight-decay-missing"),
    ],
    ids=["more", "less", "less-in-one"],
)
@pytest.mark.parametrize("name", ["adam", *swept("lamb")])
def test_a_decay_of_signs_is_told_by_its_direction(name, amount, replicas, code):
    fault = take_signs(amount, replicas)
    (finding,) = judge(observe(fault, replicas=3, rule=Rule(name=name))).findings
    assert (finding.code, finding.phase) == (code, "variable")
    assert set(finding.variables) == set(TRAINED)
    assert finding.replicas == replicas
    assert "sign" in finding.explanation


def test_where_all_elements_have_one_sign_any_constant_would_be_a_decay():
    run = Simulation(Setup(replicas=3, steps=1))
    run.initial |= {path: 2 + np.abs(run.initial[path]) for path in TRAINED}
    findings = judge(run.observe(take_signs(0.02))).findings
    assert findings
    assert "weight-decay-repeated" not in {finding.code for finding in findings}


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


@pytest.mark.parametrize("times", [1.0, 1 / 64], ids=["plain", "scaled"])
@pytest.mark.parametrize("replicas", [2, *swept(3)])
def test_a_decay_under_a_loss_scale_is_a_decay(replicas, times):
    """One device adds it to a multiple of its gradient, and so does each replica."""
    add = add_to_each({k: 0.05 * _START[k] for k in TRAINED})

    def change(gradients):
        return add({k: scale(v, times) for k, v in gradients.items()})

    evidence = observe(
        Fault(reduce=lambda ls, step: [add_up([change(g) for g in ls])] * len(ls)),
        replicas=replicas,
        sparse=False,
        alone=change,
        steps=1,
    )
    (finding,) = judge(change_apart(evidence, change)).findings
    assert finding.code == "weight-decay-repeated"
    assert finding.ratio == replicas


def test_a_clip_of_each_gradient_is_no_decay_under_a_loss_scale():
    def change(gradients):
        return {k: clip_norm(v, 0.05) for k, v in gradients.items()}

    evidence = observe(
        Fault(reduce=lambda ls, step: [add_up([change(g) for g in ls])] * len(ls)),
        replicas=2,
        sparse=False,
        alone=change,
    )
    (finding,) = judge(change_apart(evidence, change)).findings
    assert finding.code == "clip-before-reduction"


def test_what_is_added_in_shares_passes():
    added = {k: 0.05 * _START[k] for k in TRAINED}
    share = add_to_each({k: v / 3 for k, v in added.items()})
    fault = Fault(reduce=lambda ls, step: [add_up([share(g) for g in ls])] * len(ls))
    setup = {"replicas": 3, "sparse": False, "alone": add_to_each(added), "steps": 1}
    assert judge(observe(fault, **setup)).findings == ()


def add_shares(shares, of=_START):
    """A decay that one device adds once, and each replica a share of."""
    decay = {k: 0.05 * of[k] for k in TRAINED}
    adds = [add_to_each({k: s * v for k, v in decay.items()}) for s in shares]

    def reduce(locals_, step):
        own = [add(g) for add, g in zip(adds, locals_, strict=True)]
        return [add_up(own)] * len(own)

    return add_to_each(decay), Fault(reduce=reduce)


@pytest.mark.parametrize(
    ("shares", "code", "ratio", "words"),
    [
        ((0, 1, 1), "repeated", 2, "2 of N = 3 replicas"),
        ((3**-0.5,) * 3, "repeated", 3**0.5, "1.73205 times"),
        ((1 / 3, 0, 0), "missing", 1 / 3, "1 of N = 3 replicas"),
        ((0.25, 0.25, 0), "missing", 0.5, "0.5 times"),
        ((0, 0, 0), "missing", 0, "lacks the weight decay"),
    ],
    ids=["but-one", "roots", "one-share", "odd-shares", "none"],
)
def test_a_decay_of_some_replicas_is_counted(shares, code, ratio, words):
    alone, fault = add_shares(shares)
    setup = {"replicas": 3, "sparse": False, "alone": alone, "steps": 1}
    (finding,) = judge(observe(fault, **setup)).findings
    assert finding.code == f"weight-decay-{code}"
    assert (finding.phase, finding.replicas) == ("reduced_gradient", (0, 1, 2))
    assert set(finding.variables) == set(TRAINED)
    assert finding.ratio == pytest.approx(ratio, rel=1e-4, abs=1e-9)
    assert words in finding.explanation


@pytest.mark.parametrize("shares", [(1, 0, 0), (0.5, 0.25, 0.25)])
def test_a_decay_of_some_replicas_that_comes_once_passes(shares):
    alone, fault = add_shares(shares)
    setup = {"replicas": 3, "sparse": False, "alone": alone, "steps": 1}
    assert judge(observe(fault, **setup)).findings == ()


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_what_is_no_decay_is_not_counted(factor):
    """One device makes its gradient 1.25 times as large, a cluster another one."""
    times = {
        c: lambda gradients, c=c: {k: scale(v, c) for k, v in gradients.items()}
        for c in (1.25, 1 + 0.25 * factor)
    }
    other = times[1 + 0.25 * factor]
    fault = Fault(reduce=lambda ls, step: [other(add_up(ls))] * len(ls))
    setup = {"replicas": 3, "sparse": False, "alone": times[1.25], "steps": 1}
    (finding,) = judge(observe(fault, **setup)).findings
    assert finding.code == "scale-error"


def test_a_decay_that_comes_another_time_in_each_variable_is_told_of_each():
    decay = {k: 0.05 * _START[k] for k in TRAINED}
    more = {k: (place + 1.5) * v for place, (k, v) in enumerate(decay.items())}
    add = add_to_each(more)
    fault = Fault(reduce=lambda ls, step: [add(add_up(ls))] * len(ls))
    setup = {"replicas": 3, "sparse": False, "alone": add_to_each(decay), "steps": 1}
    (finding,) = judge(observe(fault, **setup)).findings
    assert finding.code == "weight-decay-repeated"
    assert f"of '{TRAINED[0]}' the sum over the replicas holds" in finding.explanation
    assert "1.5 times" in finding.explanation


_SPARSE = Simulation(Setup(replicas=3)).initial[TABLE]


def decay_rows(share):
    """Each row that is there decays once, by a share."""

    def decay(gradients, *rest):
        seen = gradients[TABLE]
        rows = np.unique(seen.indices)
        values = (seen.to_dense() + 0.05 * share * _SPARSE)[rows]
        merged = replace(seen, indices=rows, values=values.astype(seen.values.dtype))
        return {**gradients, TABLE: merged}

    return decay


@pytest.mark.parametrize("share", [1, 1 / 3])
def test_a_decay_of_own_rows_is_counted_by_replicas_that_have_them(share):
    own = decay_rows(share)
    fault = Fault(reduce=lambda ls, step: [add_up([own(g) for g in ls])] * len(ls))
    setup = {"replicas": 3, "alone": decay_rows(1), "steps": 1, "examples": 6}
    (finding,) = judge(observe(fault, **setup)).findings
    assert finding.code == "weight-decay-repeated"
    assert (finding.phase, finding.variables) == ("reduced_gradient", (TABLE,))
    assert "rows of its own examples" in finding.explanation


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


@pytest.mark.parametrize("replicas", [2, 3])
@pytest.mark.parametrize("name", ["momentum", *swept("adam")])
def test_a_slot_that_no_variable_leads_has_no_decay(name, replicas):
    """Beside a decay apart from it, an N-th of a gradient is nothing but that."""
    rule = Rule(name=name, decay=0.1)

    def update(new, old, gradients, run):
        return rule.update(
            old, {k: scale(g, 1 / replicas) for k, g in gradients.items()}
        )

    evidence = observe(Fault(update=update), replicas=replicas, rule=rule)
    (finding,) = judge(evidence).findings
    assert (finding.code, finding.phase) == ("scale-error", "slot")
    assert finding.ratio == pytest.approx(1 / replicas, rel=1e-3)
