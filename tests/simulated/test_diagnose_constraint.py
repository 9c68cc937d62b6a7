"""Constraints that a cluster forgets: no code stands for them, but words do."""

from __future__ import annotations

import numpy as np
import pytest
from planted_case import check_passed
from simulated_rule import Rule
from swept import swept
from training_simulator import HEAD, KERNEL, TRAINED, Fault, observe

from distbench.diagnose.judge import judge


def keep_positive(path, value):
    return np.maximum(value, 0) if path == KERNEL else value


def keep_below(path, value):
    return np.minimum(value, np.float32(0.3)) if path in (KERNEL, HEAD) else value


def limit_columns(path, value):
    if path != KERNEL:
        return value
    norms = np.sqrt(np.sum(value**2, axis=0, keepdims=True))
    return (value * np.minimum(1, 1.5 / norms)).astype(value.dtype)


def limit_whole(path, value):
    norm = np.sqrt(np.sum(value**2))
    return (value * min(1, 0.5 / norm)).astype(value.dtype)


CONSTRAINTS = [
    pytest.param(keep_positive, "every element at 0 or above", id="positive"),
    pytest.param(keep_below, "every element at 0.3 or below", id="below"),
    pytest.param(limit_columns, "slice along 0 to a norm of at most 1.5", id="columns"),
    pytest.param(limit_whole, "whole variable to a norm of at most 0.5", id="whole"),
]


def forget(rule):
    """The cluster takes the step and leaves the constraint out."""

    def update(new, old, gradients, run):
        return Rule(name=rule.name).update(old, gradients)

    return Fault(update=update)


@pytest.mark.first(2)
@pytest.mark.parametrize(("constraint", "words"), CONSTRAINTS)
@pytest.mark.parametrize("name", ["sgd", *swept("adam")])
def test_a_forgotten_constraint_is_put_into_words(constraint, words, name):
    rule = Rule(name=name, constraint=constraint)
    judgement = judge(observe(forget(rule), rule=rule, steps=3))
    assert {finding.code for finding in judgement.findings} == {"unexplained"}
    for finding in judgement.findings:
        assert finding.phase == "variable"
        assert f"one device keeps {words}" in finding.explanation or (
            f"one device scales every {words}" in finding.explanation
        )


@pytest.mark.first(2)
@pytest.mark.parametrize(("constraint", "words"), CONSTRAINTS)
def test_a_constraint_that_only_the_cluster_has_is_told(constraint, words):
    def update(new, old, gradients, run):
        return {k: constraint(k, v) if k in TRAINED else v for k, v in new.items()}

    judgement = judge(observe(Fault(update=update), steps=3))
    assert {finding.code for finding in judgement.findings} == {"unexplained"}
    assert all(
        words in f.explanation and "only the cluster has" in f.explanation
        for f in judgement.findings
    )


@pytest.mark.first(2)
@pytest.mark.parametrize(("constraint", "words"), CONSTRAINTS)
def test_a_constraint_that_both_have_passes(constraint, words):
    del words
    check_passed(judge(observe(rule=Rule(constraint=constraint), steps=3)))


def test_noise_that_all_copies_share_is_no_constraint():
    def update(new, old, gradients, run):
        noise = np.random.default_rng(run.step).normal(size=new[KERNEL].shape)
        return {**new, KERNEL: (new[KERNEL] + noise).astype(new[KERNEL].dtype)}

    (finding,) = judge(observe(Fault(update=update), steps=3)).findings
    assert finding.code == "unexplained"
    assert "constraint" not in finding.explanation


def test_a_variable_of_zeros_that_sinks_is_held_to_no_limit():
    """Nothing lies beyond a limit that all right elements are at."""
    rule = Rule(constraint=lambda path, v: np.zeros_like(v) if path == HEAD else v)

    def update(new, old, gradients, run):
        noise = np.random.default_rng(run.step).uniform(0.1, 1, size=new[HEAD].shape)
        return {**new, HEAD: (new[HEAD] - noise).astype(new[HEAD].dtype)}

    (finding,) = judge(observe(Fault(update=update), rule=rule, steps=3)).findings
    assert finding.variables == (HEAD,)
    assert "constraint" not in finding.explanation
