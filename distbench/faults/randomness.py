"""Mistakes in the random numbers that a step draws."""

from __future__ import annotations

from distbench.faults.fault import WIDE, fault
from distbench.samples.lazy import tf
from distbench.samples.masked import mask_gradients
from distbench.samples.program import TRAINED, ByHand, Program
from distbench.samples.replicas import all_reduce, find_replica
from distbench.unusual.reducing import ClippedByExample


@fault("randomness-shared", "loss", ("",), like="tensorflow/tensorflow#58433")
class MaskOfOneSeed(Program):
    """Dropout by stateless numbers, with a seed that knows nothing of the replica."""

    def predict(self, batch):
        words, features = batch[0], batch[1]
        embedded = tf.reduce_mean(tf.nn.embedding_lookup(self.table, words), axis=1)
        hidden = embedded @ self.first + features @ self.second + self.bias
        kept = tf.random.stateless_uniform(tf.shape(hidden), [7, 0]) > 0.3
        return tf.tanh(hidden) * tf.cast(kept, self.dtype) @ self.head


@fault(
    "randomness-shared",
    "loss",
    ("",),
    like="tensorflow/tensorflow#58433",
    clusters=WIDE,
)
class NoiseSeededByStep(Program):
    """Noise on the features, with the number of the step for its seed."""

    def build(self, strategy):
        super().build(strategy)
        self.iterations = self.optimizer().iterations

    def predict(self, batch):
        words, features, *rest = batch
        seed = tf.stack([5, tf.cast(self.iterations, tf.int32)])
        noise = tf.random.stateless_normal(tf.shape(features), seed, stddev=0.1)
        return super().predict((words, features + noise, *rest))


@fault(
    "nonlinear-before-reduction",
    "reduced_gradient",
    TRAINED,
    like="tensorflow/tensorflow#58433",
    clusters=WIDE,
)
class GradientMaskOfOwnSeed(Program):
    """A mask on the gradients has a seed with the replica's number in it."""

    def transform(self, gradients):
        return mask_gradients(gradients, 3 + find_replica())


@fault(
    "nonlinear-before-reduction",
    "variable",
    TRAINED,
    like="tensorflow/tensorflow#58433",
    clusters=("mirrored:2", "mwms:3"),
)
class GradientMaskOfOwnSeedByHand(ByHand):
    """A mask has a seed with the replica's number in it, before a sum by hand."""

    def apply(self, gradients):
        super().apply(mask_gradients(gradients, 3 + find_replica()))


@fault(
    "replicas-diverged",
    "reduced_gradient",
    TRAINED,
    like="tensorflow/tensorflow#58433",
)
class OwnNoiseBehindTheSum(ClippedByExample):
    """Each replica adds noise to the sum, with a seed of its own."""

    def reduce(self, gradients):
        return [
            total + 0.01 * tf.random.stateless_normal(total.shape, [3, find_replica()])
            for total in all_reduce("sum", gradients)
        ]
