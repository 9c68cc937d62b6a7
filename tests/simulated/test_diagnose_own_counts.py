"""Replicas that share out the heads of a model, each by its own count of them."""

from __future__ import annotations

import numpy as np
import pytest
from grouped_losses import SHARDS, WIDTH, Batch, sum_squares
from grouped_training import RATE, Simulator, put
from planted_case import check_passed

from distbench.diagnose.judge import judge

HEADS = 6
OF = (slice(0, 3), slice(3, 5), slice(5, 6))
"""The heads of each replica."""
COUNTS = np.array([head.stop - head.start for head in OF])


class DealtOut(Simulator):
    """The loss is a sum over heads, and each replica takes some, of all examples.

    Args:
        factors: What each replica multiplies its heads' part by.
    """

    def __init__(self, factors):
        super().__init__(self.add_heads)
        self.factors = factors
        self.heads = self.rng.normal(size=(HEADS, WIDTH)).astype(np.float32)

    def add_heads(self, batch: Batch, theta: Batch, heads: slice = slice(None)):
        """Each head looks at other features."""
        loss, gradient = 0.0, np.zeros(WIDTH, np.float32)
        for head in self.heads[heads]:
            more, part = sum_squares(batch * np.append(head, 1), theta)
            loss, gradient = loss + more, gradient + part * head
        return loss, gradient

    def put_cluster(self, observed, replay, step, batch, theta):
        parts = []
        for replica, factor in enumerate(self.factors):
            loss, gradient = self.add_heads(batch, theta, OF[replica])
            put(observed, step, "loss", factor * loss, replica)
            put(observed, step, "local_gradient", factor * gradient, replica)
            parts.append(np.float32(factor * gradient))
        total = np.float32(sum(parts))
        for replica in range(len(SHARDS)):
            put(observed, step, "reduced_gradient", total, replica)
            for values in (observed, replay):
                put(values, step, "applied_gradient", total, replica)
                put(values, step, "variable", theta - RATE * total, replica)


@pytest.mark.parametrize(
    ("factors", "code", "words"),
    [
        (HEADS / COUNTS / 3, "mean-of-means", "the parts are 0.5, 0.3333, 0.1667"),
        (HEADS / COUNTS, "loss-not-scaled", "not divided by N = 3"),
        (HEADS / COUNTS / 9, "loss-scaled-twice", "divided by N twice"),
        ((1.0, 0.7, 0.4), "scale-error", "count 1, 1.429, 2.5 times what they do"),
        ((0.5, 0.5, 0.5), "scale-error", "times what it should be"),
    ],
    ids=["by-own-count", "not-by-n", "by-n-twice", "odd", "alike"],
)
def test_what_each_replica_divides_by_is_told(factors, code, words):
    first = judge(DealtOut(factors).make_evidence()).findings[0]
    assert (first.code, first.step) == (code, 0), first.explanation
    assert first.confidence > 0.999
    assert words in first.explanation


def test_a_replica_without_any_part_is_told_in_another_way():
    first = judge(DealtOut((1.0, 1.0, 0.0)).make_evidence()).findings[0]
    assert "a mean over a part of its own" not in first.explanation


def test_heads_that_count_alike_pass():
    check_passed(judge(DealtOut((1.0, 1.0, 1.0)).make_evidence()))
