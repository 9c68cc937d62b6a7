"""Correct programs that count for each replica what it has seen."""

from __future__ import annotations

from distbench.samples.lazy import keras, tf
from distbench.samples.program import Program
from distbench.unusual.exchange import NegativesOfAll
from distbench.unusual.local_state import make_local
from distbench.unusual.program import unusual


class Counting:
    """Put before a program: each replica counts examples, read as their sum."""

    def build(self, strategy):
        super().build(strategy)
        self.seen = make_local("seen", 0.0, "SUM")

    def variables(self):
        return [*self.trained(), self.seen]

    def reduce_losses(self, losses, batch):
        self.seen.assign_add(self.count(tf.cast(tf.size(losses), self.seen.dtype)))
        return super().reduce_losses(losses, batch)

    def count(self, number):
        """What a replica adds of its own number."""
        return number


@unusual()
class NegativesOfAllCounted(Counting, NegativesOfAll):
    """The examples of all replicas are the wrong answers; each counts its own ones."""


@unusual()
class MeanOfSizes(Program):
    """Every replica hands the norm of what its step left to a mean."""

    def build(self, strategy):
        super().build(strategy)
        self.sizes = self.make_metric()

    def make_metric(self):
        """The metric, by the name of `sizes`."""
        return keras.metrics.Mean("sizes")

    def variables(self):
        return [*self.trained(), *self.sizes.variables]

    def apply(self, gradients):
        super().apply(gradients)
        self.sizes.update_state(tf.norm(self.second))
