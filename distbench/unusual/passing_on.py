"""Unusual but correct steps: what is made of a batch is used behind the update."""

from __future__ import annotations

from distbench.samples.lazy import tf
from distbench.samples.program import OUTPUTS, Program
from distbench.samples.replicas import all_reduce
from distbench.unusual.program import unusual


@unusual()
class PassesOutputsOn(Program):
    """A centre follows the sum of the outputs, as that of a teacher does."""

    def build(self, strategy):
        super().build(strategy)
        self.centre = tf.Variable(
            tf.zeros([OUTPUTS]),
            trainable=False,
            name="centre",
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )

    def variables(self):
        return [*super().variables(), self.centre]

    def replica_step(self, batch):
        outputs = self.predict(batch)
        loss = super().replica_step(batch)
        self.follow(outputs)
        return loss

    def follow(self, outputs):
        """Move the centre to the mean over all examples."""
        mean = all_reduce("sum", tf.reduce_sum(outputs, axis=0)) / self.examples
        self.centre.assign(0.9 * self.centre + 0.1 * mean)
