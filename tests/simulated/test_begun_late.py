"""Judging losses with a term that is 0 in the first step."""

from __future__ import annotations

import numpy as np
import pytest
from grouped_losses import WIDTH, Batch, Compute, by_statistics, sum_squares
from grouped_training import Simulator

from distbench.diagnose.judge import judge
from distbench.verdict import Status

START = np.random.default_rng(3).normal(size=WIDTH).astype(np.float32)
"""Where a simulator begins."""


def pull_back(share: float) -> Compute:
    """A penalty on the way from the start, of which so much counts."""

    def compute(batch: Batch, theta: Batch) -> tuple[float, Batch]:
        way = theta - START
        return share * float(2 * way @ way), np.float32(share * 4) * way

    return compute


def hold(count: float | None) -> Compute:
    """Answers are held to the first ones: by a mean times so much, or by a sum over G.

    Args:
        count: None is the sum.
    """

    def compute(batch: Batch, theta: Batch) -> tuple[float, Batch]:
        x = batch[:, :-1]
        rest = x @ (theta - START)
        times = np.float32(8 / 13 if count is None else 8 * count / len(batch))
        return float(0.5 * times * rest @ rest), times * (x.T @ rest)

    return compute


def join(*terms: Compute) -> Compute:
    def compute(batch: Batch, theta: Batch) -> tuple[float, Batch]:
        found = [term(batch, theta) for term in terms]
        return sum(loss for loss, _ in found), np.float32(sum(g for _, g in found))

    return compute


@pytest.mark.parametrize("base", [sum_squares, by_statistics])
@pytest.mark.parametrize(
    ("alone", "right", "wrong", "codes"),
    [
        # Under statistics a penalty is a term like another that no example changes.
        (
            pull_back(1),
            pull_back(1 / 3),
            pull_back(1),
            ("regularizer-not-scaled", "loss-not-scaled"),
        ),
        (hold(1), hold(None), hold(1), ("loss-not-scaled",)),
        (hold(1), hold(None), hold(1 / 3), ("mean-of-means",)),
    ],
)
def test_a_term_that_begins_late_is_judged(
    base: Compute,
    alone: Compute,
    right: Compute,
    wrong: Compute,
    codes: tuple[str, ...],
) -> None:
    for term, is_right in ((right, True), (wrong, False)):
        simulator = Simulator(join(base, alone), on_cluster=join(base, term))
        judgement = judge(simulator.make_evidence())
        assert judgement.status is (Status.PASS if is_right else Status.FAIL)
        if not is_right:
            first = judgement.findings[0]
            assert (first.code in codes, first.step) == (True, 1), first.explanation
