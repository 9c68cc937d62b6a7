"""Unusual but correct steps that keep state of each replica's own."""

from __future__ import annotations

import numpy as np

from distbench.samples.collecting import Collecting
from distbench.samples.copied import Copied, CopiedMean, CopiedUnseen
from distbench.samples.lazy import keras, legacy, tf
from distbench.samples.optimizers import optimizer
from distbench.samples.program import FEATURES, PenalisedProgram, Program
from distbench.samples.replicas import all_reduce, count_replicas, gather
from distbench.unusual.program import unusual


def make_local(name, initial, aggregation="NONE"):
    """A variable of which every replica has its own copy."""
    return tf.Variable(
        initial,
        name=name,
        trainable=False,
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=getattr(tf.VariableAggregation, aggregation),
    )


@unusual()
class Metrics(Program):
    """Keras metrics of the loss and of the accuracy are among the variables."""

    def build(self, strategy):
        super().build(strategy)
        self.mean = keras.metrics.Mean("loss")
        self.accuracy = keras.metrics.SparseCategoricalAccuracy("accuracy")

    def variables(self):
        metrics = (*self.mean.variables, *self.accuracy.variables)
        return [*self.trained(), *metrics]

    def compute_losses(self, batch):
        outputs, labels = self.predict(batch), tf.argmax(batch[2], axis=1)
        losses = tf.reduce_sum((outputs - batch[2]) ** 2, axis=1)
        self.mean.update_state(losses)
        self.accuracy.update_state(labels, outputs)
        return losses


@unusual()
class MetricOfShares(Program):
    """A mean gets N times each replica's share of the loss, and counts N updates."""

    def build(self, strategy):
        super().build(strategy)
        self.mean = keras.metrics.Mean("loss")

    def variables(self):
        return [*self.trained(), *self.mean.variables]

    def report(self, loss):
        self.mean.update_state(loss * count_replicas())
        return loss


@unusual()
class MetricOfPenalisedShares(PenalisedProgram):
    """A mean gets N times each replica's share, in which a share of a penalty is."""

    def build(self, strategy):
        super().build(strategy)
        self.mean = keras.metrics.Mean("loss")

    def report(self, loss):
        self.mean.update_state(loss * count_replicas())
        return loss


@unusual()
class MetricOfPenalisedSharesOfMany(MetricOfPenalisedShares):
    """So many examples that any number is a quotient of some of them by others."""

    examples = 2400


@unusual()
class UnlistedMetrics(Program):
    """Several metrics at once, weighted and of other shapes, that no list names."""

    def build(self, strategy):
        super().build(strategy)
        metrics = keras.metrics
        self.kept = {
            "mean": metrics.Mean("mean"),
            "weighted": [metrics.Mean("weighted"), metrics.Precision(name="hits")],
        }
        self.area = metrics.AUC(num_thresholds=20)
        self.overlap = metrics.MeanIoU(num_classes=3)

    def compute_losses(self, batch):
        outputs, labels = self.predict(batch), tf.argmax(batch[2], axis=1)
        losses = tf.reduce_sum((outputs - batch[2]) ** 2, axis=1)
        weights = tf.abs(batch[1][:, 0])
        weighted, hits = self.kept["weighted"]
        self.kept["mean"].update_state(losses)
        weighted.update_state(losses, sample_weight=weights)
        hits.update_state(labels > 0, tf.sigmoid(outputs[:, 0]), sample_weight=weights)
        self.area.update_state(labels > 0, tf.sigmoid(outputs[:, 1]))
        self.overlap.update_state(labels, tf.argmax(outputs, axis=1))
        return losses


@unusual()
class MetricsThatRescale(Program):
    """One metric multiplies its mean of shares by N, another forgets what it showed."""

    def build(self, strategy):
        super().build(strategy)
        replicas = count_replicas()

        class Rescaled(keras.metrics.Mean):
            def result(self):
                return super().result() * replicas

        class Forgetful(keras.metrics.Mean):
            def result(self):
                shown = super().result()
                self.reset_state()
                return shown

        self.rescaled, self.forgetful = Rescaled("rescaled"), Forgetful("forgetful")

    def variables(self):
        return [*self.trained(), *self.forgetful.variables]

    def reduce_losses(self, losses, batch):
        share = super().reduce_losses(losses, batch)
        self.rescaled.update_state(share)
        self.forgetful.update_state(losses)
        return share


@unusual()
class LargestInShares(Program):
    """A metric of the largest error, of which every replica holds 1/N."""

    def build(self, strategy):
        super().build(strategy)
        replicas = count_replicas()

        class Largest(keras.metrics.Metric):
            def __init__(self):
                super().__init__("largest")
                self.share = self.add_weight("share", initializer="zeros")

            def update_state(self, losses):
                largest = tf.reduce_max(gather(tf.reduce_max(losses)[tf.newaxis]))
                self.share.assign(tf.maximum(self.share, largest / replicas))

            def result(self):
                return tf.convert_to_tensor(self.share)

        self.largest = Largest()

    def reduce_losses(self, losses, batch):
        self.largest.update_state(losses)
        return super().reduce_losses(losses, batch)


@unusual()
class SizeInShares(Program):
    """A metric of a kernel's norm, of which every replica holds 1/N; half is unused."""

    def build(self, strategy):
        super().build(strategy)
        replicas = count_replicas()

        class Size(keras.metrics.Metric):
            def __init__(self):
                super().__init__("size")
                self.share = self.add_weight("share", initializer="zeros")
                self.unused = self.add_weight("unused", initializer="zeros")

            def update_state(self, weights):
                self.share.assign(tf.norm(weights) / replicas)

            def result(self):
                return tf.convert_to_tensor(self.share)

        self.size = Size()

    def reduce_losses(self, losses, batch):
        self.size.update_state(self.second)
        return super().reduce_losses(losses, batch)


@unusual()
class MetricsOfTheSplit(Program):
    """Metrics of the largest error and of the own gradient's norm, which are local."""

    def build(self, strategy):
        super().build(strategy)
        self.largest = keras.metrics.Mean("largest")
        self.norm = keras.metrics.Mean("norm")

    def compute_losses(self, batch):
        losses = super().compute_losses(batch)
        self.largest.update_state(tf.reduce_max(losses))
        return losses

    def transform(self, gradients):
        self.norm.update_state(tf.linalg.global_norm(gradients))
        return gradients


class Local(Program):
    """The gradients of the step go through state of the replica's own."""

    read_as = "NONE"

    def make_optimizer(self):
        return legacy.SGD(0.05)

    def build(self, strategy):
        super().build(strategy)
        self.number = make_local("number", np.int64(0), self.read_as)
        self.kept = [
            make_local(f"kept_{place}", np.zeros(v.shape, self.dtype), self.read_as)
            for place, v in enumerate(self.trained())
        ]

    def variables(self):
        return [*self.trained(), self.number, *self.kept]

    def transform(self, gradients):
        gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
        number = self.number.read_value()
        handed = []
        for kept, gradient in zip(self.kept, gradients, strict=True):
            total = kept + gradient
            sent = self.choose(tf.cast(number % 2, self.dtype), gradient.shape)
            kept.assign((1 - sent) * total)
            handed.append(sent * total)
        self.number.assign_add(1)
        return handed


@unusual()
class LocalAccumulator(Local):
    """Replicas collect their own gradients, and apply them in every second step."""

    def choose(self, odd, shape):
        return odd * tf.ones(shape, self.dtype)


@unusual()
class LocalAccumulatorReadAsFirst(LocalAccumulator):
    """As in transformers: the first copy is what is read, and each is applied."""

    read_as = "ONLY_FIRST_REPLICA"


@unusual()
class ErrorFeedback(Local):
    """Only every second row is sent; what is kept back is sent in the next step."""

    def choose(self, odd, shape):
        rows = tf.cast(tf.range(shape[0]) % 2, self.dtype)
        rows = tf.reshape(rows, [-1] + [1] * (len(shape) - 1))
        return tf.abs(rows - odd) * tf.ones(shape, self.dtype)


@unusual(workload="linear")
@optimizer("SGD", 0.05)
class CollectsOwnGradients(Collecting):
    """An optimizer that collects each replica's own gradients for two steps."""


@unusual(workload="linear")
@optimizer("SGD", 0.05)
class CollectsForMean(Collecting):
    """An optimizer that collects N times each share, in what is read as a mean."""

    read_as = "MEAN"


@unusual()
class LocalAverage(Program):
    """A moving mean of the replica's own examples, meant for itself alone."""

    read_as = "NONE"

    def build(self, strategy):
        super().build(strategy)
        zeros = np.zeros(FEATURES, self.dtype)
        self.moving = make_local("moving", zeros, self.read_as)

    def variables(self):
        return [*self.trained(), self.moving]

    def compute_losses(self, batch):
        mean = tf.reduce_mean(batch[1], axis=0)
        self.moving.assign(0.9 * self.moving + 0.1 * mean)
        return super().compute_losses(batch)


@unusual()
class OwnAverageReadAsMean(LocalAverage):
    """Such means, of which the mean is what is read and saved."""

    read_as = "MEAN"

    def compute_losses(self, batch):
        # A share of the mean over all examples, N times, and not that of the shard's.
        share = tf.reduce_sum(batch[1], axis=0) / self.examples
        taken, kept = count_replicas() * share, self.find_momentum()
        self.moving.assign(kept * self.moving + (1 - kept) * taken)
        return Program.compute_losses(self, batch)

    def find_momentum(self):
        """What a step leaves of the mean."""
        return 0.9


@unusual()
class NumbersReadAsFirst(Program):
    """Copies of a number of steps and of one of all examples, of which one is read."""

    def build(self, strategy):
        super().build(strategy)
        first = "ONLY_FIRST_REPLICA"
        self.steps = make_local("steps", np.int64(0), first)
        self.seen = make_local("seen", np.int64(0), first)

    def variables(self):
        return [*self.trained(), self.steps, self.seen]

    def compute_losses(self, batch):
        self.steps.assign_add(1)
        number = tf.shape(batch[1], tf.int64)[0]
        self.seen.assign_add(all_reduce("SUM", number))
        return super().compute_losses(batch)


@unusual()
class CarriesItsOwnState(Program):
    """What a replica has seen so far is added to what it sees, as by a recurrence."""

    def build(self, strategy):
        super().build(strategy)
        self.seen = make_local("seen", np.zeros(FEATURES, self.dtype))

    def variables(self):
        return [*self.trained(), self.seen]

    def compute_losses(self, batch):
        words, features, targets = batch
        seen = self.seen.read_value()
        self.seen.assign(0.5 * seen + tf.reduce_mean(features, axis=0))
        return super().compute_losses((words, features + seen, targets))


@unusual(clusters=("mirrored:2", "mwms:3"))
class OwnCopies(Copied):
    """Every replica updates its own copies by the sum, as under Sonnet's replicator."""


@unusual(clusters=("mirrored:2", "mwms:3"))
class OwnCopiesOfUnseen(CopiedUnseen):
    """Own copies move by sums of gradients that nobody sees."""


@unusual(clusters=("mirrored:2", "mwms:3"))
class AveragesOwnSteps(CopiedMean):
    """Own copies step by the own gradient, and are averaged before the step ends."""


@unusual(clusters=("mirrored:2", "mwms:3"))
class OwnCopiesReadAsMean(CopiedMean):
    """Every replica moves its own copies by the sum; their mean is read."""

    def step(self, value, gradient):
        return value - self.rate * all_reduce("sum", gradient)

    def average(self, value):
        return value
