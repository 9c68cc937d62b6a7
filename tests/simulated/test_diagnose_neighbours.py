"""Losses that hold each example of a shard against the next one."""

from __future__ import annotations

import numpy as np
from grouped_losses import EXAMPLES, Batch, sum_squares
from grouped_training import Simulator

from distbench.diagnose.judge import judge
from distbench.verdict import Status
from distbench.worker.one_device.repeating import repeat_rows


def sum_beside_neighbours(batch: Batch, theta: Batch) -> tuple[float, Batch]:
    """A sum of squares, and of the squared steps from each error to the next one."""
    loss, gradient = sum_squares(batch, theta)
    steps = np.diff(batch, axis=0)
    rest = steps[:, :-1] @ theta - steps[:, -1]
    beside = steps[:, :-1].T @ rest / np.float32(EXAMPLES)
    return loss + float(0.5 * rest @ rest / EXAMPLES), gradient + beside


def mean_beside_neighbours(batch: Batch, theta: Batch) -> tuple[float, Batch]:
    """The same, divided by the number of the own examples."""
    loss, gradient = sum_beside_neighbours(batch, theta)
    times = np.float32(EXAMPLES / len(batch))
    return loss * float(times), gradient * times


def test_a_sum_over_neighbours_is_compared_with_the_own_shard() -> None:
    judgement = judge(Simulator(sum_beside_neighbours).make_evidence())
    assert judgement.status is Status.PASS, judgement
    assert "compared with its own shard" in judgement.message


def test_a_mean_of_what_neighbours_add_is_told() -> None:
    [finding] = judge(Simulator(mean_beside_neighbours).make_evidence()).findings
    assert (finding.code, finding.phase) == ("loss-not-scaled", "loss")


def test_rows_that_come_again_have_no_new_steps_between_them() -> None:
    rows = np.array([[1.0, 2.0], [4.0, 8.0], [16.0, 32.0]])
    for times in (1, 2, 3):
        repeated = repeat_rows(rows, times)
        assert len(repeated) == times * len(rows)
        for count in (len, lambda r: np.abs(np.diff(r, axis=0)).sum()):
            assert count(repeated) == times * count(rows)
