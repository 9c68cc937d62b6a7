"""Correct steps that collect gradients in accumulators of the program."""

from __future__ import annotations

from distbench.samples.lazy import tf
from distbench.samples.program import OwnReduction
from distbench.samples.replicas import count_replicas
from distbench.unusual.program import unusual


@unusual()
class CollectedBySums(OwnReduction):
    """What every replica assigns is added up, and handed to the optimizer."""

    aggregation = "SUM"

    def build(self, strategy):
        super().build(strategy)
        self.collected = [
            tf.Variable(
                tf.zeros(variable.shape, variable.dtype),
                name=f"collected{place}",
                trainable=False,
                aggregation=getattr(tf.VariableAggregation, self.aggregation),
            )
            for place, variable in enumerate(self.trained())
        ]

    def variables(self):
        return [*self.trained(), *self.collected]

    def reduce(self, gradients):
        for variable, gradient in zip(self.collected, gradients, strict=True):
            variable.assign(tf.convert_to_tensor(gradient))
        return [tf.identity(variable) for variable in self.collected]


@unusual()
class CollectedForTwoSteps(CollectedBySums):
    """Accumulators take the sums of two steps, and are cleared once these count."""

    def build(self, strategy):
        super().build(strategy)
        self.taken = tf.Variable(
            0,
            name="taken",
            trainable=False,
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )

    def variables(self):
        return [*super().variables(), self.taken]

    def reduce(self, gradients):
        self.taken.assign_add(1)
        is_due = self.taken % 2 == 0
        handed = []
        for variable, gradient in zip(self.collected, gradients, strict=True):
            # What is assigned is added up, so each gives a share of what is kept.
            kept = variable / count_replicas()
            variable.assign(kept + tf.convert_to_tensor(gradient))
            total = tf.identity(variable)
            handed.append(tf.where(is_due, total, tf.zeros_like(total)))
            left = tf.where(self.clears(is_due), tf.zeros_like(total), total)
            variable.assign(left / count_replicas())
        return handed

    def clears(self, is_due):
        """Whether the accumulators are cleared."""
        return is_due
