"""Correct programs whose loss is made of state that its step assigns before it."""

from __future__ import annotations

from distbench.samples.lazy import tf
from distbench.samples.program import Program
from distbench.samples.replicas import all_reduce
from distbench.unusual.program import unusual


@unusual()
class DividedByMovingWeight(Program):
    """Losses are divided by a moving mean of what all examples of a step weigh."""

    aggregation = "MEAN"

    def build(self, strategy):
        super().build(strategy)
        self.weight = tf.Variable(
            12.0,
            name="weight",
            trainable=False,
            aggregation=getattr(tf.VariableAggregation, self.aggregation),
        )

    def variables(self):
        return [*self.trained(), self.weight]

    def reduce_losses(self, losses, batch):
        weights = tf.abs(batch[1][:, 0])
        self.move(tf.reduce_sum(weights))
        return tf.reduce_sum(weights * losses) / self.weight

    def move(self, own):
        """Assigns the mean, given what the own examples weigh."""
        self.weight.assign(0.75 * self.weight + 0.25 * all_reduce("sum", own))


@unusual()
class DividedByMovingLoss(DividedByMovingWeight):
    """The loss is divided by a moving mean of that of all examples."""

    def reduce_losses(self, losses, batch):
        share = tf.reduce_sum(losses) / self.examples
        self.move(tf.stop_gradient(share))
        return share / self.weight
