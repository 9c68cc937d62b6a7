"""Weights of examples, as they are meant."""

from __future__ import annotations

from distbench.samples.counted import Counted
from distbench.samples.lazy import tf
from distbench.samples.program import OwnReduction, Program
from distbench.samples.replicas import all_reduce
from distbench.samples.weighted_model import weighted_model
from distbench.unusual.program import unusual


@unusual(clusters=("mirrored:2", "mirrored:4"))
@weighted_model("sum_over_batch_size")
class WeightsOverOwnExamples:
    """Keras divides weighted losses by the number of examples, not by the weights."""


@unusual(clusters=("mirrored:2", "mwms:3"))
class DividedByAllPositives(Counted):
    """A loss is divided by the positives of all replicas, and by no less than 1."""


@unusual(clusters=("mirrored:2", "mwms:3"))
class TwoTermsOverAllWeights(Program):
    """Two terms of one loss have the same weights, which all replicas add up."""

    def reduce_losses(self, losses, batch):
        weights = tf.cast(1 + batch[0][:, 0], losses.dtype)
        sizes = tf.reduce_sum(self.predict(batch) ** 4, axis=1)
        first = tf.reduce_sum(weights * losses) / self.count(weights)
        return first + tf.reduce_sum(weights * sizes) / self.count_again(weights)

    def count(self, weights):
        """Their sum over all replicas."""
        return all_reduce("sum", tf.reduce_sum(weights))

    def count_again(self, weights):
        """The same, for the second term."""
        return self.count(weights)


@unusual(clusters=("mirrored:2", "mwms:3"))
class OwnMeansWeighted(OwnReduction):
    """Means over the own shards are weighted by the shards' sizes, and summed."""

    loss_reduction = "mean"

    def replica_step(self, batch):
        share = self.weigh(tf.cast(tf.shape(batch[1])[0], self.dtype))
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(self.compute_losses(batch))
        gradients = tape.gradient(loss, self.trained())
        self.apply([share * tf.convert_to_tensor(gradient) for gradient in gradients])
        return all_reduce("sum", share * loss)

    def weigh(self, count):
        """What a shard of so many examples counts."""
        return count / all_reduce("sum", count)
