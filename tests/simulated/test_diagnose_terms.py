"""Losses of several terms, of which some are scaled wrongly."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from grouped_losses import EXAMPLES, SHARDS, sum_squares
from grouped_training import Simulator, put
from planted_case import check_passed

from distbench.diagnose.judge import judge
from distbench.split import shard_slices


def sum_fourths(batch, theta):
    """A quarter of the outputs' fourth powers, summed and divided by G."""
    x = batch[:, :-1]
    out = x @ theta / 4
    return float(np.sum(out**4) / EXAMPLES), x.T @ out**3 / np.float32(EXAMPLES)


TERMS = (sum_squares, sum_fourths)


def add_terms(*factors):
    """A loss in which each term counts some times."""

    def compute(batch, theta):
        found = [term(batch, theta) for term in TERMS]
        pairs = list(zip(factors, found, strict=True))
        return (
            sum(factor * loss for factor, (loss, _) in pairs),
            sum(np.float32(factor) * gradient for factor, (_, gradient) in pairs),
        )

    return compute


class BySteps(Simulator):
    """Three replicas whose terms count other times in each step.

    Args:
        factors: Those of both terms, of each step.
    """

    def __init__(self, *factors):
        super().__init__(add_terms(1, 1))
        self.factors = factors

    def put_cluster(self, observed, replay, step, batch, theta):
        self.on_cluster = add_terms(*self.factors[step])
        super().put_cluster(observed, replay, step, batch, theta)


def observe(*factors, knows_terms=True):
    """Three replicas whose terms count other times than on one device."""
    run = Simulator(add_terms(1, 1), on_cluster=add_terms(*factors))
    return add_known_terms(run, knows_terms)


def add_known_terms(run, knows_terms=True):
    """The evidence of a run, with what one device gives for each term alone."""
    evidence = run.make_evidence()
    terms = []
    for term in TERMS if knows_terms else ():
        values = {}
        for step in range(evidence.reference.steps):
            theta = evidence.get_before(step, "variable", "kernel")
            _, gradient = term(run.draw(step), theta)
            put(values, step, "local_gradient", gradient)
        terms.append(run.make_trace(values))
    return replace(evidence, terms=tuple(terms))


@pytest.mark.parametrize(
    ("factors", "code", "words"),
    [
        ((1 / 3, 1), "loss-scaled-twice", "number 1 counts 1/N = 1/3 of"),
        ((1, 3), "loss-not-scaled", "number 2 counts N = 3 times"),
        ((1, 0.7), "scale-error", "number 2 counts 0.7 times"),
        ((1, 0), "scale-error", "number 2 counts 0 times"),
        ((1, 9.00004), "scale-error", "number 2 counts 9 times"),
        ((1, 655.36), "scale-error", "number 2 counts 655.36 times"),
        ((1, 2.001), "scale-error", "number 2 counts 2.001 times"),
        ((1, -2), "scale-error", "number 2 counts -2 times"),
        ((3, 0.7), "loss-not-scaled", "what it should and number 2 counts 0.7 times"),
    ],
    ids=[
        "first-divided-twice",
        "second-n-times",
        "odd",
        "left-out",
        "whole",
        "large",
        "near-two",
        "turned",
        "both",
    ],
)
def test_a_term_that_is_scaled_wrongly_is_told(factors, code, words):
    first = judge(observe(*factors)).findings[0]
    assert first.code == code
    assert first.confidence > 0.999
    assert words in first.explanation


@pytest.mark.parametrize(
    ("factors", "words"),
    [
        (
            [(1.0004, 1), (1.3, 1), (0.9, 1)],
            "number 1 counts 1.0004, 1.3, 0.9 times what it should, step by step",
        ),
        (
            [(1 / 3, 1.2), (1 / 3, 1.3), (1 / 3, 1.1)],
            "number 1 counts 0.333333, 0.333333, 0.333333 times what it should and "
            "number 2 counts 1.2, 1.3, 1.1 times what it should, step by step",
        ),
    ],
    ids=["one", "beside-a-fixed-one"],
)
def test_a_term_that_is_scaled_otherwise_in_each_step_is_told(factors, words):
    first = judge(add_known_terms(BySteps(*factors))).findings[0]
    assert first.code == "scale-error"
    assert first.confidence > 0.999
    assert words in first.explanation


def test_factors_of_steps_on_all_of_a_loss_are_no_matter_of_terms():
    factors = [(1.2, 1.2), (1.3, 1.3), (0.9, 0.9)]
    first = judge(add_known_terms(BySteps(*factors))).findings[0]
    assert first.code == "scale-error"
    assert "terms" not in first.explanation


def test_without_the_terms_nothing_tells_it():
    first = judge(observe(1, 3, knows_terms=False)).findings[0]
    assert first.code in ("unexplained", "scale-error")
    assert "terms" not in first.explanation


def test_a_factor_of_all_terms_is_that_of_the_loss():
    first = judge(observe(3, 3)).findings[0]
    assert first.code == "loss-not-scaled"
    assert "terms" not in first.explanation
    odd = judge(observe(0.7, 0.7)).findings[0]
    assert odd.code == "scale-error"
    assert "terms" not in odd.explanation


def test_what_no_factors_of_terms_make_is_not_told_as_such():
    run = Simulator(
        add_terms(1, 1), on_cluster=lambda b, t: add_terms(1, 1)(b, np.abs(t))
    )
    known = observe(1, 1)
    judgement = judge(replace(run.make_evidence(), terms=known.terms))
    assert all("terms of the loss" not in f.explanation for f in judgement.findings)


def test_terms_that_are_right_pass():
    check_passed(judge(observe(1, 1)))


def weigh(power):
    """A mean of powers of the outputs over the weights of a batch, or of more."""

    def compute(batch, theta, total=None):
        x, weights = batch[:, :-1], 1 + batch[:, -1] ** 2
        out, total = x @ theta / 4, total or np.sum(weights)
        gradient = x.T @ (weights * out ** (power - 1)) / total
        return float(weights @ out**power / power / total), np.float32(gradient)

    return compute


MEANS = (weigh(2), weigh(4))


class OwnMeans(Simulator):
    """The second of two means over weights is one over each replica's own.

    Args:
        share: What that mean counts on each replica.
    """

    def __init__(self, share):
        super().__init__(lambda b, t: self.add(b, t, 1.0))
        self.share = share

    def add(self, batch, theta, share, total=None):
        first, second = MEANS[0](batch, theta, total), MEANS[1](batch, theta)
        return tuple(
            a + np.float32(share) * b for a, b in zip(first, second, strict=True)
        )

    def put_cluster(self, observed, replay, step, batch, theta):
        total = np.sum(1 + batch[:, -1] ** 2)
        self.on_cluster = lambda b, t: self.add(b, t, self.share, total)
        super().put_cluster(observed, replay, step, batch, theta)


@pytest.mark.parametrize("knows_shards", [True, False])
@pytest.mark.parametrize(
    ("share", "code"), [(1.0, "loss-not-scaled"), (1 / 3, "mean-of-means")]
)
def test_a_term_that_is_a_mean_over_own_weights_is_told(share, code, knows_shards):
    run = OwnMeans(share)
    evidence = run.make_evidence()
    terms = []
    for term in MEANS:
        values = {}
        for step in range(3):
            theta = evidence.get_before(step, "variable", "kernel")
            parts = [run.draw(step)[part] for part in shard_slices(SHARDS)]
            put(values, step, "local_gradient", term(run.draw(step), theta)[1])
            for replica, part in enumerate(parts if knows_shards else []):
                put(values, step, "local_gradient", term(part, theta)[1], replica)
        terms.append(run.make_trace(values))
    first = judge(replace(evidence, terms=tuple(terms))).findings[0]
    assert (first.code == code) == knows_shards
    words = "number 2 is a mean over each replica's own weights"
    assert (words in first.explanation) == knows_shards
