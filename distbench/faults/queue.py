"""Mistakes in examples that a program keeps."""

from __future__ import annotations

from distbench.faults.fault import fault
from distbench.samples.lazy import tf
from distbench.unusual.exchange import ALIKE
from distbench.unusual.queue import (
    FeaturesByRunningDeviation,
    QueueOfAll,
    TargetsLessRunningMean,
)


@fault(
    "statistics-not-synchronized",
    "variable",
    ("queue",),
    like="KevinMusgrave/pytorch-metric-learning#639",
    clusters=ALIKE,
)
class QueueOfOwn(QueueOfAll):
    """A queue takes what each replica predicts of its own examples, and is averaged."""

    def push(self, keys):
        return tf.concat([self.queue, keys], axis=0)[tf.shape(keys)[0] :]


@fault("mean-instead-of-sum", "variable", ("mean",), like="keras-team/keras#20541")
class RunningMeanOfShares(TargetsLessRunningMean):
    """Each replica's share of a mean is averaged, which leaves an N-th of the mean."""

    def find_mean(self, targets):
        return tf.reduce_sum(targets, axis=0) / self.examples


@fault(
    "statistics-not-synchronized",
    "variable",
    ("deviation",),
    like="pytorch/pytorch#22192",
)
class MeanOfDeviations(FeaturesByRunningDeviation):
    """Each replica's own deviation is averaged, which is less than that of all."""

    def measure(self, features):
        return tf.math.reduce_std(features, axis=0)
