"""Numbers that rules make of each replica's gradient, and scale it by."""

from __future__ import annotations

import numpy as np
import pytest
from gradient_values import (
    add_up,
    clip_all,
    measure_all,
    scale,
    to_array,
)
from training_simulator import (
    TRAINED,
    Fault,
    observe,
)

from distbench.diagnose.judge import judge
from distbench.trace import WHOLE, TraceKey


def add_like_adasum(locals_, step):
    """Two replicas' gradients less what they share, variable by variable."""
    total = {}
    for path in locals_[0]:
        a, b = (to_array(g[path]).astype(np.float64) for g in locals_)
        dot = np.sum(a * b)
        total[path] = (1 - dot / (2 * np.sum(a * a))) * a
        total[path] += (1 - dot / (2 * np.sum(b * b))) * b
    return [{p: v.astype(np.float32) for p, v in total.items()}] * 2


@pytest.mark.first(1)
@pytest.mark.parametrize("sparse", [True, False], ids=["sparse", "dense"])
def test_numbers_that_scale_each_replicas_gradient_are_told(sparse):
    """Of small variables nothing else is said, whatever comes near it."""
    evidence = observe(Fault(reduce=add_like_adasum), steps=3, sparse=sparse)
    (finding,) = judge(evidence).findings
    assert finding.code == "nonlinear-before-reduction"
    assert set(finding.variables) == set(TRAINED)
    assert "by a number that differs by variable or step" in finding.explanation


def test_the_numbers_of_a_finding_are_of_the_variable_that_it_names():
    evidence = observe(Fault(reduce=add_like_adasum), steps=3, sparse=False)
    finding = judge(evidence).findings[0]
    key = TraceKey(step=0, phase="reduced_gradient", variable=finding.variable)
    seen = np.float64(evidence.observed.values[key.at(0)])
    due = np.float64(evidence.reference.values[key.at(WHOLE)])
    assert finding.error == pytest.approx(np.max(np.abs(seen - due)))
    assert finding.ratio == pytest.approx(np.vdot(seen, due) / np.vdot(due, due))


def scale_by_own_norm(locals_, step):
    """The sum, over each replica's own norm."""
    total = add_up(locals_)
    return [
        {p: scale(v, 1 / measure_all(g)) for p, v in total.items()} for g in locals_
    ]


def add_own_again(locals_, step):
    """The sum, and a tenth of each replica's own gradient."""
    total = add_up(locals_)
    return [
        {p: to_array(v) + np.float32(0.1) * to_array(g[p]) for p, v in total.items()}
        for g in locals_
    ]


@pytest.mark.parametrize(
    ("reduce", "words"),
    [
        (scale_by_own_norm, "multiplies the sum by a number of its own"),
        (add_own_again, "weighs all gradients by numbers of its own"),
    ],
)
def test_numbers_of_each_replica_that_scale_a_sum_are_told(reduce, words):
    evidence = observe(Fault(reduce=reduce), steps=3, sparse=False)
    first = judge(evidence).findings[0]
    assert (first.code, first.phase) == ("scale-error", "reduced_gradient")
    assert set(first.variables) == set(TRAINED)
    assert words in first.explanation


def divide_own(locals_, step):
    """Each replica's own gradients, each over a number that only it knows."""
    return [
        {p: scale(v, 1 / (1 + np.sum(np.abs(to_array(v))))) for p, v in g.items()}
        for g in locals_
    ]


def test_own_gradients_that_each_replica_scales_are_not_reduced():
    evidence = observe(Fault(reduce=divide_own), steps=3, sparse=False)
    (finding,) = judge(evidence).findings
    assert (finding.code, finding.phase) == ("missing-reduction", "reduced_gradient")
    assert "its own gradient, times a number of its own: in " in finding.explanation


@pytest.mark.first(1)
@pytest.mark.parametrize("replicas", [2, 3])
def test_a_sum_of_some_that_is_clipped_lacks_the_others(replicas):
    """Of what was left out the clip hides how much it was, and not whose."""

    def lose_first(locals_, step):
        total = {p: to_array(v) for p, v in add_up(locals_[1:]).items()}
        return [clip_all(total, 0.3)] * len(locals_)

    evidence = observe(
        Fault(reduce=lose_first),
        alone=lambda g: clip_all(g, 0.3),
        replicas=replicas,
        sparse=False,
        steps=3,
    )
    (finding,) = judge(evidence).findings
    assert (finding.code, finding.replicas) == ("replica-dropped", (0,))


def scale_on_last(factor):
    """All replicas have the sum, and the last one so many times that."""

    def reduce(locals_, step):
        total = add_up(locals_)
        scaled = {path: scale(value, factor) for path, value in total.items()}
        return [*[total] * (len(locals_) - 1), scaled]

    return reduce


@pytest.mark.first(1)
@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_no_collective_scales_the_sum_of_one_replica(factor):
    evidence = observe(Fault(reduce=scale_on_last(factor)), steps=3)
    (finding, *_) = judge(evidence).findings
    assert (finding.code, finding.replicas) == ("scale-error", (1,))
    assert finding.ratio == pytest.approx(factor)
