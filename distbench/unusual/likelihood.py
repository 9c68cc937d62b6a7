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


@unusual()
class LearnedNoises(LearnedNoise):
    """Two errors, each divided by a noise of its own; their logarithms are shared."""

    def build(self, strategy):
        super().build(strategy)
        self.noise = tf.Variable([0.3, -0.2], name="noise")

    def reduce_losses(self, losses, batch):
        spread = tf.reduce_sum(self.predict(batch) ** 2, axis=1) / self.examples
        first, second = tf.unstack(tf.exp(-self.noise))
        share = super().reduce_losses(losses, batch)
        return first * share + second * tf.reduce_sum(spread)

    def compute_losses(self, batch):
        return Program.compute_losses(self, batch)

    def compute_penalty(self):
        return 0.5 * tf.reduce_sum(self.noise)
