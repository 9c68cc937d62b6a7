"""Mistakes in metrics and other totals that every replica has a part of."""

from __future__ import annotations

from distbench.faults.fault import WIDE, fault
from distbench.samples.lazy import keras, keras3_base, tf
from distbench.samples.program import PenalisedProgram, Program
from distbench.samples.replicas import all_reduce, count_replicas, find_replica
from distbench.unusual.counting import Counting, Largest, MeanOfSizes

TOTAL, COUNT = "total", "count"


class Metered(Program):
    """A Keras metric follows the mean loss of the examples."""

    def build(self, strategy):
        super().build(strategy)
        self.metric = keras.metrics.Mean("loss")

    def variables(self):
        return [*self.trained(), *self.metric.variables]

    def reduce_losses(self, losses, batch):
        self.feed(losses)
        return super().reduce_losses(losses, batch)

    def feed(self, losses):
        self.metric.update_state(losses)


@fault(
    "metric-wrong",
    "loss",
    (TOTAL,),
    like="LucaCappelletti94/extra_keras_metrics#11",
    replicas=(0, 1),
)
class MetricOfLossTimesReplicas(Metered):
    """The metric gets every example's loss times N, and counts each example once."""

    def feed(self, losses):
        self.metric.update_state(losses * count_replicas())


@fault(
    "metric-wrong",
    "loss",
    (TOTAL, COUNT),
    like="Nota-NetsPresso/netspresso-trainer#342",
    replicas=(1,),
)
class MetricOfFirstReplica(Metered):
    """The metric is updated on replica 0 alone."""

    def feed(self, losses):
        if find_replica() == 0:
            self.metric.update_state(losses)


@fault(
    "metric-wrong",
    "loss",
    (TOTAL,),
    like="huggingface/transformers#608",
    replicas=(0, 1),
)
class MetricOfLocalMeans(Metered):
    """The metric gets the mean of each shard, and the shards are uneven."""

    def feed(self, losses):
        self.metric.update_state(tf.reduce_mean(losses))


@fault("metric-wrong", "loss", ("loss",), like="tensorflow/docs#608", clusters=WIDE)
class MetricOfOwnShare(Metered):
    """The metric takes the mean of the replicas' shares, which add up to the loss."""

    def reduce_losses(self, losses, batch):
        share = Program.reduce_losses(self, losses, batch)
        self.metric.update_state(share)
        return share


@fault("metric-wrong", "loss", ("loss",), like="tensorflow/docs#608", clusters=WIDE)
class MetricOfPenalisedShare(PenalisedProgram):
    """The mean of the replicas' shares, each with its share of a penalty."""

    def build(self, strategy):
        super().build(strategy)
        self.metric = keras.metrics.Mean("loss")

    def report(self, loss):
        self.metric.update_state(loss)
        return loss


@fault("metric-wrong", "loss", ("loss",), like="tensorflow/docs#608")
class MetricOfPenalisedShareOfMany(MetricOfPenalisedShare):
    """So many examples that any number is a quotient of some of them by others."""

    examples = 2400


@fault(
    "metric-wrong",
    "loss",
    ("objective",),
    like="tensorflow/docs#608",
    clusters=("mirrored:2", "mirrored:3"),
)
class UnlistedMetricOfOwnShare(Program):
    """A metric of Keras 3, which the program does not list, takes the own share."""

    def build(self, strategy):
        super().build(strategy)
        self.objective = keras3_base.metrics.Mean("objective")
        self.right = keras3_base.metrics.Mean("right")

    def reduce_losses(self, losses, batch):
        share = super().reduce_losses(losses, batch)
        self.objective.update_state(share)
        self.right.update_state(losses)
        return share


@fault(
    "metric-wrong",
    "loss",
    ("seen",),
    like="pytorch/torchtitan#2990",
    replicas=(0, 1),
)
class GlobalCountOnEveryReplica(Counting, Program):
    """Every replica adds the examples of all of them to its part of a sum."""

    def count(self, number):
        return all_reduce("sum", number)


@fault(
    "mean-instead-of-sum",
    "variable",
    ("seen",),
    like="keras-team/keras#20541",
    clusters=WIDE,
)
class CountsReadAsMean(Counting, Program):
    """Each replica counts its own examples, and the mean of the counts is read."""

    aggregation = "MEAN"


@fault(
    "metric-wrong",
    "loss",
    ("seen",),
    like="keras-team/keras#19340",
    clusters=WIDE,
)
class LargestReadAsSum(Largest, Program):
    """Each replica keeps its largest target in a variable that is read as their sum."""


@fault(
    "metric-wrong",
    "loss",
    ("largest",),
    like="keras-team/keras#19340",
    clusters=WIDE,
)
class LargestOfEachReplica(Program):
    """A metric keeps the largest error, and Keras adds up what the replicas hold."""

    def build(self, strategy):
        super().build(strategy)

        class Largest(keras.metrics.Metric):
            def __init__(self):
                super().__init__("largest")
                self.value = self.add_weight("value", initializer="zeros")

            def update_state(self, losses):
                self.value.assign(tf.maximum(self.value, tf.reduce_max(losses)))

            def result(self):
                return tf.convert_to_tensor(self.value)

        self.largest = Largest()

    def reduce_losses(self, losses, batch):
        self.largest.update_state(losses)
        return super().reduce_losses(losses, batch)


@fault(
    "metric-wrong",
    "loss",
    ("size",),
    like="keras-team/keras#19340",
    clusters=WIDE,
)
class SizeOfEachReplica(Program):
    """A metric keeps the norm of a kernel, and what all replicas hold is added up."""

    def build(self, strategy):
        super().build(strategy)

        class Size(keras.metrics.Metric):
            def __init__(self):
                super().__init__("size")
                self.value = self.add_weight("value", initializer="zeros")
                self.unused = self.add_weight("unused", initializer="zeros")

            def update_state(self, weights):
                self.value.assign(tf.norm(weights))

            def result(self):
                return tf.convert_to_tensor(self.value)

        self.size = Size()

    def reduce_losses(self, losses, batch):
        self.size.update_state(self.second)
        return super().reduce_losses(losses, batch)


@fault(
    "metric-wrong",
    "loss",
    ("sizes",),
    like="keras-team/keras#19340",
    clusters=WIDE,
)
class SizesAddedUp(MeanOfSizes):
    """Every replica adds the norm of what its step left to a sum, N times in all."""

    def make_metric(self):
        return keras.metrics.Sum("sizes")
