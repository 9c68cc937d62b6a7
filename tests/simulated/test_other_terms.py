"""Terms that the largest shard of the first step does not show."""

from __future__ import annotations

import numpy as np
import pytest
from grouped_losses import EXAMPLES, SHARDS, Batch, sum_squares
from grouped_training import Simulator

from distbench.compare.nature.grouping import find_nature
from distbench.compare.state.measured_noise import measure_noise
from distbench.diagnose.judge import judge
from distbench.verdict import Status

FLOOR = 70.0


class Loud(Simulator):
    """The examples of the last shard are far larger than the others, in one step."""

    step = 0

    def draw(self, step: int) -> Batch:
        batch = super().draw(step)
        if step == self.step:
            batch[-SHARDS[-1] :] *= np.float32(4)
        return batch


class LoudLater(Loud):
    step = 1


def rise_over(batch: Batch, theta: Batch, weight: float = 1.0) -> tuple[float, Batch]:
    """A sum, and of the mean square of the own outputs what is over a floor."""
    loss, gradient = sum_squares(batch, theta)
    x = batch[:, :-1]
    outputs = x @ theta
    square = float(np.mean(outputs**2))
    if square > FLOOR:
        gradient = gradient + np.float32(2 * weight / len(batch)) * (x.T @ outputs)
    return loss + weight * max(square, FLOOR), gradient


def rise_by_share(batch: Batch, theta: Batch) -> tuple[float, Batch]:
    return rise_over(batch, theta, len(batch) / EXAMPLES)


def rise_evenly(batch: Batch, theta: Batch) -> tuple[float, Batch]:
    return rise_over(batch, theta, 1 / len(SHARDS))


def limited(batch: Batch, theta: Batch) -> tuple[float, Batch]:
    """A sum whose gradient is limited to a norm that loud examples exceed."""
    loss, gradient = sum_squares(batch, theta)
    size = float(np.linalg.norm(gradient))
    return loss, gradient * np.float32(min(1.0, 20 / size))


@pytest.mark.parametrize("simulate", [Loud, LoudLater])
def test_a_term_that_other_shards_show_has_its_share(simulate: type[Loud]) -> None:
    evidence = simulate(rise_over, on_cluster=rise_by_share).make_evidence()
    nature = find_nature(evidence, measure_noise(evidence))
    assert (nature.grouped, nature.kind) == (True, "terms")
    judgement = judge(evidence)
    assert judgement.status is Status.PASS, judgement.findings


@pytest.mark.parametrize("simulate", [Loud, LoudLater])
@pytest.mark.parametrize(
    ("on_cluster", "code"),
    [(rise_over, "loss-not-scaled"), (rise_evenly, "mean-of-means")],
)
def test_what_it_counts_is_told(simulate: type[Loud], on_cluster, code: str) -> None:
    evidence = simulate(rise_over, on_cluster=on_cluster).make_evidence()
    (finding,) = judge(evidence).findings
    assert finding.code == code, finding.explanation


@pytest.mark.parametrize("simulate", [Loud, LoudLater])
def test_a_limit_that_binds_on_other_shards_is_no_term(simulate: type[Loud]) -> None:
    evidence = simulate(limited).make_evidence()
    nature = find_nature(evidence, measure_noise(evidence))
    assert (nature.grouped, nature.kind) == (True, "sum")
    assert judge(evidence).status is Status.PASS
