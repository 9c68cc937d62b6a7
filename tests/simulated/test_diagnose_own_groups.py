"""Replicas of which each has the sum over another group."""

from __future__ import annotations

import pytest
from gradient_values import add_up
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
