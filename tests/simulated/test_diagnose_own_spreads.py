"""Variances that lack how far the means of shards are apart, as sums tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from grouped_losses import sum_squares
from grouped_training import Simulator

from distbench.compare.arrays.measure import Margin
from distbench.compare.arrays.pair import GLOBAL, Pair
from distbench.diagnose.clues.context import Context
from distbench.diagnose.hypotheses.own_spreads import explain_by_own_variances
from distbench.trace import WHOLE, Phase, TraceKey, Values, VariableInfo

SIZES = (6, 4, 3)
MEAN, VARIANCE = "mean", "variance"
EVERY = slice(None)


def key(path: str, replica: int, phase: Phase = "local_gradient") -> TraceKey:
    return TraceKey(step=0, phase=phase, variable=path, replica=replica)


def info(path: str, size: int) -> VariableInfo:
    return VariableInfo(
        path=path,
        role="variable",
        of="",
        shape=(size,),
        dtype="float64",
        synchronised=True,
        trainable=True,
    )


def make_context(
    width: int, share: float, alive: slice = EVERY, sizes: Sequence[int] = SIZES
) -> Context:
    """A program that hands over means and variances, and weighs them by examples.

    Args:
        width: Numbers of each.
        share: How much of the variance of the means a sum has.
        alive: Which of them are not 0 in all examples.
        sizes: Examples of each replica.
    """
    rng = np.random.default_rng(4)
    lives = np.zeros(width)
    lives[alive] = 1
    shards = [lives * rng.normal(loc=r, size=(n, width)) for r, n in enumerate(sizes)]
    batch = np.concatenate(shards)
    weights = np.asarray(sizes) / sum(sizes)
    means, variances = ([f(s, axis=0) for s in shards] for f in (np.mean, np.var))
    apart = np.square(np.asarray(means) - batch.mean(axis=0))
    evidence = Simulator(sum_squares).make_evidence()
    observed, reference = (
        Values(trace.values) for trace in (evidence.observed, evidence.reference)
    )
    for path, whole, parts in (
        (MEAN, batch.mean(axis=0), means),
        (VARIANCE, batch.var(axis=0), variances),
    ):
        reference[key(path, WHOLE)] = whole
        for replica, part in enumerate(parts):
            observed[key(path, replica)] = part
    observed[key(VARIANCE, 0, "reduced_gradient")] = weights @ (
        np.asarray(variances) + share * apart
    )
    infos = (info(MEAN, width), info(VARIANCE, width))
    case = Pair(
        key=key(VARIANCE, WHOLE),
        relation="reference",
        against=GLOBAL,
        observed=np.sum(variances, axis=0),
        expected=batch.var(axis=0),
        margin=Margin(bound=1e-9),
        dtype="float64",
        terms=tuple(variances),
    )
    known = {"variables": infos, "shards": tuple(sizes), "replicas": len(sizes)}
    return Context(
        evidence=replace(
            evidence,
            observed=replace(evidence.observed, values=observed, **known),
            reference=replace(evidence.reference, values=reference, **known),
        ),
        phase="local_gradient",
        cases=(case,),
    )


def test_a_variance_without_that_of_the_means_is_told_with_its_means() -> None:
    (found,) = explain_by_own_variances(make_context(12, 0))
    assert (found.code, found.phase) == (
        "statistics-not-synchronized",
        "reduced_gradient",
    )
    assert list(found.predicted) == [0]
    assert "by which 'mean' is moved" in found.detail


@pytest.mark.parametrize("alive", [slice(12), slice(500, 512)], ids=["first", "middle"])
def test_a_few_numbers_that_lie_side_by_side_tell_it(alive: slice) -> None:
    (found,) = explain_by_own_variances(make_context(1000, 0, alive))
    assert "by which 'mean' is moved" in found.detail


def test_what_overflows_hides_no_other_number() -> None:
    context = make_context(300, 0)
    values = Values(context.evidence.observed.values)
    for path in (key(VARIANCE, 1), key(VARIANCE, 0, "reduced_gradient")):
        values[path] = np.where(np.arange(300) == 7, np.inf, values[path])
    evidence = replace(
        context.evidence, observed=replace(context.evidence.observed, values=values)
    )
    (found,) = explain_by_own_variances(replace(context, evidence=evidence))
    assert "by which 'mean' is moved" in found.detail


def test_so_many_replicas_that_few_numbers_fit_any_weights_are_told() -> None:
    assert list(explain_by_own_variances(make_context(300, 0, sizes=(3, 4) * 31)))


@pytest.mark.parametrize(
    ("width", "share"), [(12, 0.5), (12, 1), (5, 0)], ids=["half", "whole", "few"]
)
def test_what_has_some_of_it_or_has_few_numbers_is_not_told_so(
    width: int, share: float
) -> None:
    assert not list(explain_by_own_variances(make_context(width, share)))


@pytest.mark.parametrize("seed", range(20))
def test_distances_that_lie_by_chance_near_what_is_left_are_not_told(seed: int) -> None:
    """A sum that is off by a little more than what counts as the same."""
    context = make_context(12, 1)
    (case,) = context.cases
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=case.observed.shape)
    near = case.observed + 1.18e-3 * np.linalg.norm(case.observed) * noise / (
        np.linalg.norm(noise)
    )
    seen = Values(context.evidence.observed.values)
    seen[key(VARIANCE, 0, "reduced_gradient")] = case.observed
    evidence = replace(
        context.evidence, observed=replace(context.evidence.observed, values=seen)
    )
    context = replace(context, evidence=evidence, cases=(replace(case, expected=near),))
    assert not list(explain_by_own_variances(context))
