"""What a traced step makes of losses is wrong with these, and nothing of its own."""

from __future__ import annotations

import pytest
from one_run import check_one

import distbench
import distbench.faults.of_losses as faulty
from distbench.samples.lazy import tf
from distbench.samples.replicas import all_reduce, update

pytestmark = pytest.mark.cluster


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("of_losses:BestOfOwnMeans", "loss-not-scaled"),
        ("of_losses:BestWithFullPenalty", "regularizer-not-scaled"),
        ("of_losses:OwnMeansOfTwoLossesByHand", "loss-not-scaled"),
        ("turns:OwnMeansInTurnByHand", "loss-not-scaled"),
    ],
)
def test_a_wrong_loss_is_one_finding(name: str, code: str) -> None:
    run = check_one(f"distbench.faults.{name}")
    assert [found.code for found in run.findings] == [code]


class BestBeforeTheScale(faulty.BestOfOwnMeans):
    """Tapes differentiate a multiple of the loss of which the step keeps the lowest."""

    def replica_step(self, batch):
        with tf.GradientTape() as tape:
            loss = self.reduce_losses(self.compute_losses(batch), batch)
            scaled = 8.0 * loss
        gradients = tape.gradient(scaled, self.trained())
        self.apply([tf.convert_to_tensor(g) / 8.0 for g in gradients])
        return 0.0 + self.report(loss)


@pytest.mark.nightly
def test_so_it_is_of_a_loss_before_its_scale() -> None:
    (run,) = distbench.check(BestBeforeTheScale, "mirrored:2", tier="bounded").runs
    assert [found.code for found in run.findings] == ["loss-not-scaled"]


class MeanOfErrors(faulty.BestOfOwnMeans):
    """A mean of the examples' errors is kept as well, of the replicas' own means."""

    def build(self, strategy):
        super().build(strategy)
        self.mean = tf.Variable(0.0, trainable=False, name="mean")

    def variables(self):
        return [*super().variables(), self.mean]

    def reduce_losses(self, losses, batch):
        mean = all_reduce("mean", tf.reduce_mean(tf.sqrt(losses)))
        update(self.mean, lambda copy, value: copy.assign(value), mean)
        return super().reduce_losses(losses, batch)


@pytest.mark.nightly
def test_what_is_made_of_errors_before_they_are_a_loss_is_told() -> None:
    (run,) = distbench.check(MeanOfErrors, "mirrored:2", tier="bounded").runs
    assert any("mean" in found.variables for found in run.findings[1:])
