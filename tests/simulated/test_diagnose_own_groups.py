"""Replicas of which each has the sum over another group."""

from __future__ import annotations

import pytest
from gradient_values import add_up, scale
from training_simulator import Fault, observe

from distbench.diagnose.judge import judge

APART = [(0, 1), (0, 1), (2,)]
RING = [(0, 1), (1, 2), (2, 3), (0, 3)]
SHARED = [(0, 1, 2), (0, 1), (0, 1)]


def sum_groups(groups):
    return Fault(
        reduce=lambda locals_, step: [
            add_up([locals_[r] for r in group]) for group in groups
        ]
    )


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        (
            APART,
            "each replica has the sum over its own group alone, and not over all "
            "(replicas 0, 1; replica 2)",
        ),
        (
            RING,
            "each replica has the sum over some replicas alone, and not over all "
            "(replica 0 over replicas 0, 1; replica 1 over replicas 1, 2; "
            "replica 2 over replicas 2, 3; replica 3 over replicas 0, 3)",
        ),
        (SHARED, "the sum lacks the gradient of replica 2"),
    ],
)
def test_each_replica_has_the_sum_over_its_group(groups, words):
    evidence = observe(sum_groups(groups), replicas=len(groups), examples=20)
    (finding,) = judge(evidence).findings
    assert finding.code == "replica-dropped"
    assert words in finding.explanation


def multiply(factor):
    def reduce(locals_, step):
        total = {k: scale(v, factor) for k, v in add_up(locals_).items()}
        return [total for _ in locals_]

    return Fault(reduce=reduce)


@pytest.mark.parametrize(
    ("replicas", "factor", "words"),
    [
        (4, 2, "the sums of groups of 2 of N = 4 replicas are added up by all"),
        (6, 3, "the sums of groups of 3 of N = 6 replicas are added up by all"),
        (4, 0.5, "groups of 2 of N = 4 replicas each take a mean"),
    ],
)
def test_a_number_of_replicas_that_may_be_in_groups_is_told(replicas, factor, words):
    evidence = observe(multiply(factor), replicas=replicas, examples=24)
    (finding,) = judge(evidence).findings
    assert (finding.code, finding.phase) == ("scale-error", "reduced_gradient")
    assert finding.ratio == factor
    assert words in finding.explanation
    assert "in such groups first" in finding.explanation


@pytest.mark.parametrize(("replicas", "factor"), [(5, 2), (6, 4), (4, 1.5)])
def test_another_number_tells_of_no_groups(replicas, factor):
    evidence = observe(multiply(factor), replicas=replicas, examples=30)
    (finding,) = judge(evidence).findings
    assert finding.code == "scale-error"
    assert "groups" not in finding.explanation
