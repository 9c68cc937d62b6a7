"""Correct moving means of what the model makes of its examples."""

from __future__ import annotations

from distbench.samples.lazy import tf
from distbench.samples.program import OUTPUTS, Program
from distbench.samples.replicas import count_replicas
from distbench.unusual.program import unusual


@unusual()
class MeanMovedSlowly(Program):
    """A mean moves slowly, by what rounds as the mean does and not as its move."""

    def build(self, strategy):
        super().build(strategy)
        self.mean = tf.Variable(
            tf.zeros(OUTPUTS, self.dtype),
            name="mean",
            trainable=False,
            aggregation=tf.VariableAggregation.MEAN,
        )

    def variables(self):
        return [*self.trained(), self.mean]

    def compute_losses(self, batch):
        own = self.average(self.predict(batch))
        self.mean.assign(own + 0.999 * (self.mean - own))
        return super().compute_losses(batch)

    def average(self, outputs):
        """What has the mean of the global batch for its mean over the replicas."""
        return tf.reduce_sum(outputs, axis=0) * count_replicas() / self.examples
