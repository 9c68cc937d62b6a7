"""Mistakes in the random numbers that a step draws for its examples."""

from __future__ import annotations

from distbench.faults.fault import WIDE, fault
from distbench.samples.lazy import tf
from distbench.samples.program import Program


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
