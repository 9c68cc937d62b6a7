"""Slots that keep a norm, a largest element or products of own gradients."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from evidence_changes import change_evidence
from gradient_values import add_up, map_values, to_array
from hidden_sums import hide_sums
from planted_case import check_passed
from simulated_rule import Rule
from swept import swept
from training_simulator import KERNEL, Fault, observe

from distbench.diagnose.judge import judge
from distbench.trace import TraceKey


def measure_norm(gradients):
    squares = [np.sum(to_array(v).astype(np.float64) ** 2) for v in gradients.values()]
    return np.sqrt(np.sum(squares))


def measure_slices(gradients):
    parts = [np.asarray(getattr(v, "values", v)) for v in gradients.values()]
    return np.sqrt(sum(np.sum(part.astype(np.float64) ** 2) for part in parts))


def find_largest(gradients):
    return max(np.max(np.abs(to_array(v))) for v in gradients.values())


def take_mean_size(gradients):
    joined = np.concatenate([to_array(v).ravel() for v in gradients.values()])
    return np.mean(np.abs(joined))


def keep_own(combine):
    """The average takes a number that is made of the replicas' own statistics."""

    def update(new, old, gradients, run):
        own = [run.rule.statistic(g) for g in run.locals]
        taken = combine(own, run.replica)
        running = run.rule.average(old["running"], taken, run.step)
        return {**new, "running": running}

    return Fault(update=update)


def square_rows(gradients):
    return np.sum(to_array(gradients[KERNEL]) ** 2, axis=1)


def square_columns(gradients):
    return np.mean(to_array(gradients[KERNEL]) ** 2, axis=0)


def multiply_rows(gradients):
    return to_array(gradients[KERNEL]) @ to_array(gradients[KERNEL]).T


def multiply_columns(gradients):
    return to_array(gradients[KERNEL]).T @ to_array(gradients[KERNEL])


PRODUCTS = [square_rows, square_columns, multiply_rows, multiply_columns]
STATISTICS = [measure_norm, measure_slices, find_largest, take_mean_size]


@pytest.mark.first(4)
@pytest.mark.parametrize("steps", [2, *swept(3)])
@pytest.mark.parametrize("statistic", STATISTICS, ids=lambda s: s.__name__)
@pytest.mark.parametrize(
    "combine",
    [
        lambda own, r: own[r],
        lambda own, r: np.mean(own),
        lambda own, r: np.sum(own),
        lambda own, r: own[0],
    ],
    ids=["own", "mean", "sum", "first"],
)
def test_a_statistic_of_own_gradients_is_told(statistic, combine, steps):
    rule = Rule(statistic=statistic)
    evidence = observe(keep_own(combine), rule=rule, replicas=3, steps=steps)
    (finding,) = judge(evidence).findings
    assert (finding.code, finding.phase) == ("slot-from-local-gradient", "slot")
    assert finding.variables == ("running",)
    assert finding.replicas == (0, 1, 2)
    assert finding.confidence > 0.999


@pytest.mark.parametrize(
    "statistic",
    [*PRODUCTS[::2], *swept(*PRODUCTS[1::2])],
    ids=lambda s: s.__name__,
)
@pytest.mark.parametrize(
    ("combine", "words"),
    [
        (lambda own, r: own[r], "the replica's own gradient"),
        (lambda own, r: np.sum(own, axis=0), "own gradients, added up"),
    ],
    ids=["own", "sum"],
)
def test_products_of_own_gradients_are_told(statistic, combine, words):
    """The slot has no variable's shape, and does not say of which variable it is."""
    rule = Rule(statistic=statistic)
    evidence = observe(keep_own(combine), rule=rule, replicas=3, steps=2)
    (finding,) = judge(evidence).findings
    assert (finding.code, finding.phase) == ("slot-from-local-gradient", "slot")
    assert finding.variables == ("running",)
    assert words in finding.explanation
    assert finding.confidence > 0.999


def forget_less(step):
    """Later steps weigh less, as Adafactor has it."""
    share = (step + 1.0) ** -0.8
    return 1 - share, share


def start_as_first(step):
    return (0.75, 0.25) if step else (0.0, 1.0)


def square_norm(gradients):
    return np.sum(to_array(gradients[KERNEL]).astype(np.float64) ** 2)


SUMS = [
    (lambda own, r: np.sum(own, axis=0), "own gradients, added up"),
    (lambda own, r: 9 * np.mean(own, axis=0), "of N times the replicas'"),
    (lambda own, r: own[r], "the replica's own gradient"),
    (lambda own, r: own[1], "of replica 1"),
]


@pytest.mark.parametrize(
    ("statistic", "weights"),
    [
        (square_rows, forget_less),
        (square_columns, start_as_first),
        (square_norm, start_as_first),
        (multiply_rows, forget_less),
    ],
)
@pytest.mark.parametrize(
    ("combine", "words"), SUMS, ids=["sum", "scaled", "own", "one"]
)
def test_numbers_that_change_by_step_are_those_of_one_device(
    statistic, weights, combine, words
):
    rule = Rule(statistic=statistic, weights=weights)
    evidence = observe(keep_own(combine), rule=rule, replicas=3, steps=3)
    (finding,) = judge(evidence).findings
    assert (finding.code, finding.phase) == ("slot-from-local-gradient", "slot")
    assert finding.variables == ("running",)
    assert words in finding.explanation
    assert finding.confidence > 0.999


@pytest.mark.parametrize("weights", [forget_less, start_as_first])
@pytest.mark.parametrize("statistic", [square_rows, square_norm])
@pytest.mark.parametrize("later", [1, 2])
def test_other_numbers_of_a_step_are_no_statistic_of_own_gradients(
    statistic, weights, later
):
    """Those of a later step, as where replicas count steps together."""

    def update(new, old, gradients, run):
        taken = run.rule.statistic(gradients)
        running = run.rule.average(old["running"], taken, later + run.step)
        return {**new, "running": running}

    rule = Rule(statistic=statistic, weights=weights)
    evidence = observe(Fault(update=update), rule=rule, replicas=3, steps=3)
    codes = {finding.code for finding in judge(evidence).findings}
    assert codes
    assert "slot-from-local-gradient" not in codes


@pytest.mark.parametrize("statistic", [square_rows, square_norm])
@pytest.mark.parametrize("factor", [0.5, 1.5, 3.0])
def test_a_multiple_is_no_statistic_of_own_gradients(statistic, factor):
    def update(new, old, gradients, run):
        return {**new, "running": new["running"] * np.float32(factor)}

    rule = Rule(statistic=statistic, weights=start_as_first)
    evidence = observe(Fault(update=update), rule=rule, replicas=3, steps=3)
    codes = {finding.code for finding in judge(evidence).findings}
    assert codes
    assert "slot-from-local-gradient" not in codes


def weigh(gradients):
    """A statistic that nobody foretells: how far the step goes in some direction."""
    kernel = to_array(gradients[KERNEL])
    return np.sum(np.cos(np.arange(kernel.size)) * kernel.ravel() ** 3)


@pytest.mark.parametrize(
    ("combine", "words"),
    [
        (lambda own, r: own[1], "the gradients of replica 1"),
        (lambda own, r: np.mean(own), "averaged"),
    ],
    ids=["one", "mean"],
)
def test_any_statistic_of_own_gradients_is_told_by_one_device(combine, words):
    """It is fed with each replica's own ones."""
    rule = Rule(statistic=weigh)
    evidence = observe(keep_own(combine), rule=rule, replicas=3, steps=2)
    reference, observed = evidence.reference, evidence.observed
    values = {}
    for step in range(2):
        before = evidence.get_before(step, "slot", "running")
        for replica in range(3):
            found = observed.select(step=step, phase="local_gradient", replica=replica)
            taken = weigh({key.variable: value for key, value in found})
            key = TraceKey(step=step, phase="slot", variable="running", replica=replica)
            values[key] = rule.average(before, taken)
    assert judge(evidence).findings[0].code == "hyperparameter-differs"
    apart = replace(reference, values=values)
    (finding,) = judge(change_evidence(evidence, apart=apart)).findings
    assert (finding.code, finding.phase) == ("slot-from-local-gradient", "slot")
    assert words in finding.explanation


def bend(gradients):
    """No buffer follows from it as a slot does, so none is told to be one."""
    return {
        path: map_values(g, lambda x: np.sign(x) * np.sqrt(np.abs(x)))
        for path, g in gradients.items()
    }


def measure_before(gradients):
    """The norm before they were bent."""
    return measure_norm({p: to_array(g) ** 2 for p, g in gradients.items()})


def keep_by_hand(trace):
    """As a program that makes steps by hand keeps them: all state is the model's."""
    infos = {v.path: v for v in trace.variables if v.role == "slot"}
    values = {
        replace(key, phase="variable") if key.variable in infos else key: value
        for key, value in trace.values.items()
    }
    variables = tuple(
        replace(info, role="variable", trainable=False, of="")
        if info.path in infos
        else info
        for info in trace.variables
    )
    return replace(trace, values=values, variables=variables)


def follow_own_norms(new, old, gradients, run):
    """Buffers and variables follow a wrong statistic in a way that is not known."""
    own = [measure_norm(g) for g in run.locals]
    running = run.rule.average(old["running"], np.mean(own))
    off = np.float32(running - new["running"])
    led = [path for path in new if path not in ("running", "iterations")]
    bent = {path: new[path] + off * np.cos(new[path]) ** 2 for path in led}
    return {**new, **bent, "running": running}


def test_what_follows_a_wrong_statistic_by_hand_is_left_out():
    rule = Rule(name="momentum", statistic=measure_before)
    fault = Fault(
        reduce=lambda own, step: [bend(add_up(own))] * 3, update=follow_own_norms
    )
    setup = {"replicas": 3, "steps": 2, "shards_known": False, "sparse": False}
    found = observe(fault, alone=bend, rule=rule, **setup)
    hidden = hide_sums(found.change_traces(keep_by_hand))
    kept = tuple(v.path for v in hidden.observed.variables if not v.trainable)
    subject = replace(hidden.subject, kept=kept)
    (finding,) = judge(replace(hidden, subject=subject)).findings
    assert finding.code == "slot-from-local-gradient"
    assert finding.variables == ("running",)


@pytest.mark.first(2)
@pytest.mark.parametrize(
    "statistic", [*STATISTICS, *PRODUCTS], ids=lambda s: s.__name__
)
def test_a_statistic_of_the_sum_passes(statistic):
    check_passed(judge(observe(rule=Rule(statistic=statistic), steps=3)))


@pytest.mark.parametrize(
    "change",
    [lambda old, new, run: new * np.float32(1.5), lambda old, new, run: old],
    ids=["scaled", "still"],
)
def test_another_number_is_no_statistic_of_own_gradients(change):
    def update(new, old, gradients, run):
        return {**new, "running": change(old["running"], new["running"], run)}

    rule = Rule(statistic=measure_norm)
    evidence = observe(Fault(update=update), rule=rule, replicas=3, steps=3)
    codes = {finding.code for finding in judge(evidence).findings}
    assert codes == {"hyperparameter-differs"}
