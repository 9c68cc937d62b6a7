"""Correct programs with state that starts from what stands for nothing known."""

from __future__ import annotations

from distbench.samples.lazy import tf
from distbench.samples.program import FEATURES, Program
from distbench.samples.replicas import all_reduce
from distbench.unusual.program import unusual


@unusual()
class DiffusePrior(Program):
    """The variance of each feature's weight begins as a million, as of a filter."""

    def build(self, strategy):
        super().build(strategy)
        self.variance = tf.Variable(
            tf.fill([FEATURES], 1e6),
            trainable=False,
            name="variance",
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )

    def variables(self):
        return [*super().variables(), self.variance]

    def replica_step(self, batch):
        loss = super().replica_step(batch)
        known = tf.reduce_sum(batch[1] ** 2, axis=0)
        self.variance.assign(1 / self.join(1 / self.variance, known))
        return loss

    def join(self, prior, known):
        """What is known before and by the examples of all replicas."""
        return prior + all_reduce("sum", known)
