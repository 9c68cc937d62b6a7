"""Correct moving means of what the model makes of its examples."""

from __future__ import annotations

from distbench.samples.lazy import tf
from distbench.samples.program import FEATURES, OUTPUTS, Program
from distbench.samples.replicas import all_reduce, count_replicas
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


@unusual(clusters=("mirrored:3", "mwms:2"))
class WideMeansSentInFloat32(Program):
    """Float64 means of which what is summed travels as float32, on one device too."""

    def build(self, strategy):
        super().build(strategy)
        self.means = [self.make_mean("mean", [FEATURES]), self.make_mean("size", [])]

    def make_mean(self, name, shape):
        """A moving mean that starts at 0; all replicas assign the same."""
        return tf.Variable(
            tf.zeros(shape, tf.float64),
            name=name,
            trainable=False,
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )

    def variables(self):
        return [*self.trained(), *self.means]

    def replica_step(self, batch):
        loss = super().replica_step(batch)
        features = tf.cast(batch[1], tf.float64)
        sums = tf.reduce_sum(features, axis=0), tf.reduce_sum(features**2)
        for mean, own in zip(self.means, sums, strict=True):
            total = tf.cast(all_reduce("sum", tf.cast(own, tf.float32)), tf.float64)
            mean.assign(0.9 * mean + 0.1 * total / self.examples)
        return loss
