"""Mistakes in moving means of examples, and of what the model makes of them."""

from __future__ import annotations

from distbench.faults.fault import EVERYWHERE, WIDE, fault
from distbench.faults.state import Statistics, StatisticsOfAll
from distbench.samples.lazy import tf
from distbench.samples.program import FEATURES
from distbench.samples.replicas import all_reduce, count_replicas
from distbench.unusual.moving_means import MeanMovedSlowly as _MeanMovedSlowly


@fault(
    "statistics-not-synchronized",
    "variable",
    ("mean",),
    like="huggingface/transformers#34191",
    clusters=EVERYWHERE,
)
class MeanMovedByOwnMeans(_MeanMovedSlowly):
    """A mean moves slowly, to the mean of all replicas' own, whatever their sizes."""

    def average(self, outputs):
        return tf.reduce_mean(outputs, axis=0)


@fault(
    "statistics-not-synchronized",
    "variable",
    ("moving/mean",),
    like="tensorflow/tpu#321",
    clusters=WIDE,
)
class MovedByAddedMeans(StatisticsOfAll):
    """A mean moves to the sum of all replicas' means, which nobody divides by N."""

    def measure(self, features):
        return self.add_up(tf.reduce_mean(features, axis=0))


@fault(
    "statistics-not-synchronized",
    "variable",
    ("moving/mean",),
    like="huggingface/transformers#34191",
    clusters=WIDE,
)
class MeansBesideAddedLargest(Statistics):
    """A mean of means, beside a norm of the largest ones that each replica has."""

    def build(self, strategy):
        super().build(strategy)
        self.largest = tf.Variable(
            tf.zeros(FEATURES, self.dtype),
            name="largest",
            trainable=False,
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )

    def variables(self):
        return [*super().variables(), self.largest]

    def replica_step(self, batch):
        loss = super().replica_step(batch)
        largest = all_reduce("sum", tf.reduce_max(tf.abs(batch[1]), axis=0) ** 3)
        self.largest.assign(0.9 * self.largest + 0.1 * largest ** (1 / 3))
        return loss


@fault(
    "lower-precision",
    "variable",
    ("moving/mean",),
    like="horovod/horovod#3786",
    clusters=WIDE,
    warning=True,
)
class StatisticsKeptInBfloat16(StatisticsOfAll):
    """A moving mean, right by itself, is rounded to bfloat16 after each step."""

    def replica_step(self, batch):
        loss = super().replica_step(batch)
        if count_replicas() > 1:
            kept = tf.cast(self.moving, tf.bfloat16)
            self.moving.assign(tf.cast(kept, self.moving.dtype))
        return loss
