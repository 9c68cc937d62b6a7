"""Correct programs with a trained noise, whose logarithm normalises a likelihood."""

from __future__ import annotations

from distbench.samples.lazy import tf
from distbench.samples.program import Program
from distbench.unusual.program import unusual


@unusual()
class LearnedNoise(Program):
    """Errors are divided by a trained noise; its logarithm is shared out."""

    def build(self, strategy):
        super().build(strategy)
        self.noise = tf.Variable(0.3, name="noise")

    def trained(self):
        return [*super().trained(), self.noise]

    def compute_losses(self, batch):
        return super().compute_losses(batch) * tf.exp(-self.noise)

    def compute_penalty(self):
        return 0.5 * self.noise
