"""Mistakes with the weights of examples, which even shards do not hide."""

from __future__ import annotations

from distbench.faults.fault import fault
from distbench.samples.counted import Counted
from distbench.samples.lazy import tf
from distbench.samples.program import TRAINED, Program
from distbench.samples.replicas import all_reduce, count_replicas
from distbench.samples.weighted_model import weighted_model
from distbench.unusual.weights import OwnMeansWeighted, TwoTermsOverAllWeights


@fault(
    "mean-of-means",
    "loss",
    ("",),
    like="huggingface/transformers#34242",
    clusters=("mirrored:2", "mirrored:4"),
)
@weighted_model("mean_with_sample_weight")
class MeanOverOwnWeights:
    """Keras divides by the weights of the replica's own examples."""


@fault(
    "mean-of-means",
    "loss",
    ("",),
    like="huggingface/transformers#34242",
    clusters=("mirrored:2", "mwms:3"),
)
class DividedByOwnPositives(Counted):
    """Each replica divides by its own positives, and by no less than 1, and by N."""

    def count(self, positive):
        return tf.maximum(positive, 1.0) * count_replicas()


@fault(
    "mean-of-means",
    "loss",
    like="huggingface/transformers#34242",
    clusters=("mirrored:2", "mwms:3"),
)
class OwnWeightsByExamples(Program):
    """The mean over a shard's own weights counts as its number of examples does."""

    def reduce_losses(self, losses, batch):
        weights = tf.cast(1 + batch[0][:, 0], losses.dtype)
        part = tf.cast(tf.size(losses), losses.dtype) / self.examples
        return part * tf.reduce_sum(weights * losses) / tf.reduce_sum(weights)


@fault(
    "loss-not-scaled",
    "loss",
    ("",),
    like="huggingface/transformers#34242",
    clusters=("mirrored:2", "mwms:3"),
)
class DividedByOwnPositivesAlone(Counted):
    """Each replica divides by its own positives, and by no less than 1."""

    def count(self, positive):
        return tf.maximum(positive, 1.0)


@fault("nonfinite", "loss", like="huggingface/transformers#34242", replicas=(-1,))
class DividedByNoPositives(Counted):
    """Each replica divides by its own positives, of which the last one has none."""

    def count(self, positive):
        return positive * count_replicas()


@fault(
    "loss-not-scaled",
    "loss",
    like="huggingface/transformers#34242",
    clusters=("mirrored:2", "mwms:3"),
)
class SecondTermOverOwnWeights(TwoTermsOverAllWeights):
    """Of two terms with the same weights the second is divided by the replica's own."""

    def count_again(self, weights):
        return tf.reduce_sum(weights)


@fault(
    "mean-of-means",
    "loss",
    like="huggingface/transformers#34242",
    clusters=("mirrored:2", "mwms:3"),
)
class SecondTermOverOwnWeightsTimesReplicas(TwoTermsOverAllWeights):
    """The second of two terms is divided by the replica's own weights, and by N."""

    def count_again(self, weights):
        return tf.reduce_sum(weights) * count_replicas()


@fault(
    "mean-instead-of-sum",
    "reduced_gradient",
    TRAINED,
    like="huggingface/transformers#34242",
    clusters=("mirrored:2", "mwms:3"),
)
class WeightedMeansAveraged(OwnMeansWeighted):
    """Means over uneven shards are weighted by their shares, and then averaged too."""

    def reduce(self, gradients):
        return list(all_reduce("mean", gradients))


@fault(
    "scale-error",
    "reduced_gradient",
    TRAINED,
    like="huggingface/transformers#34242",
    clusters=("mirrored:2", "mwms:3"),
)
class WeightsUpsideDown(OwnMeansWeighted):
    """The smaller a shard, the more its mean counts, in gradient and loss alike."""

    def weigh(self, count):
        inverse = 1.0 / count
        return inverse / all_reduce("sum", inverse)
