"""Correct programs that count for each replica what it has seen."""

from __future__ import annotations

from distbench.samples.lazy import tf
from distbench.unusual.exchange import NegativesOfAll
from distbench.unusual.program import unusual


@unusual()
class NegativesOfAllCounted(NegativesOfAll):
    """The examples of all replicas are the wrong answers; each counts its own ones."""

    def build(self, strategy):
        super().build(strategy)
        self.seen = tf.Variable(
            0.0,
            name="seen",
            trainable=False,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
        )

    def variables(self):
        return [*self.trained(), self.seen]

    def reduce_losses(self, losses, batch):
        self.seen.assign_add(tf.cast(tf.size(losses), self.seen.dtype))
        return super().reduce_losses(losses, batch)
