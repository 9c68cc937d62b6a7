"""Correct losses that are made of slopes by the inputs."""

from __future__ import annotations

from distbench.samples.lazy import tf
from distbench.samples.program import Program
from distbench.unusual.program import unusual


@unusual()
class SlopesOfTheShare(Program):
    """Slopes of the replica's share of the outputs' mean by its inputs are small."""

    def reduce_losses(self, losses, batch):
        words, features = batch[0], batch[1]
        with tf.GradientTape() as tape:
            tape.watch(features)
            score = self.average(self.predict((words, features))[:, 0])
        slopes = tape.gradient(score, features)
        return super().reduce_losses(losses, batch) + 20 * tf.reduce_sum(slopes**2)

    def average(self, scores):
        """The replica's share of the mean."""
        return tf.reduce_sum(scores) / self.examples
