"""Unusual but correct steps whose result depends on which examples are together."""

from __future__ import annotations

from distbench.samples.lazy import keras, keras3_base, tf
from distbench.samples.program import (
    FEATURES,
    HIDDEN,
    OUTPUTS,
    OwnReduction,
    PenalisedProgram,
    Program,
)
from distbench.samples.replicas import (
    all_reduce,
    count_replicas,
    find_replica,
    take_share,
)
from distbench.unusual.program import unusual
from distbench.unusual.reducing import MeanAggregator


def normalise(x):
    """Batch statistics of the replica's own examples."""
    mean, variance = tf.nn.moments(x, axes=[0])
    return (x - mean) / tf.sqrt(variance + 1e-3)


@unusual()
class BatchStatistics(Program):
    """Each replica normalises by the mean and variance of its own examples."""

    def predict(self, batch):
        words, features = batch[0], batch[1]
        embedded = tf.reduce_mean(tf.nn.embedding_lookup(self.table, words), axis=1)
        hidden = embedded @ self.first + features @ self.second + self.bias
        return tf.tanh(normalise(hidden)) @ self.head


@unusual()
class BatchStatisticsUnderMean(BatchStatistics):
    """Batch statistics, and each replica's mean weighs as much as its examples."""

    def reduce_losses(self, losses, batch):
        del batch
        return take_share(losses, self.examples)


@unusual()
class LossOfAllReported(BatchStatistics):
    """Trains on the own share; reports the loss of all, which every replica has."""

    loss_reduction = "mean"

    def report(self, loss):
        return all_reduce("sum", loss)


@unusual()
class NormalisationLayer(Program):
    """Keras' BatchNormalization, whose moving statistics differ between replicas."""

    def build(self, strategy):
        super().build(strategy)
        self.layer = keras.layers.BatchNormalization(
            momentum=self.find_momentum(), name="norm"
        )
        self.layer.build([None, HIDDEN])

    def find_momentum(self):
        """What a step leaves of its moving statistics."""
        return 0.9

    def trained(self):
        return [*super().trained(), *self.layer.trainable_variables]

    def variables(self):
        return [*super().trained(), *self.layer.variables]

    def predict(self, batch):
        words, features = batch[0], batch[1]
        embedded = tf.reduce_mean(tf.nn.embedding_lookup(self.table, words), axis=1)
        hidden = embedded @ self.first + features @ self.second + self.bias
        return tf.tanh(self.layer(hidden, training=True)) @ self.head


@unusual()
class SynchronisedNormalisationLayer(NormalisationLayer):
    """A normalisation layer of Keras takes the statistics of the global batch."""

    def build(self, strategy):
        super().build(strategy)
        self.layer = keras.layers.BatchNormalization(name="norm", synchronized=True)
        self.layer.build([None, HIDDEN])


@unusual()
class CentredByAllReplicas(Program):
    """Features are centred by a moving mean of those of all replicas."""

    def build(self, strategy):
        super().build(strategy)
        self.moving = tf.Variable(
            tf.zeros(FEATURES, self.dtype),
            name="moving/mean",
            trainable=False,
            aggregation=tf.VariableAggregation.MEAN,
        )

    def variables(self):
        return [*self.trained(), self.moving]

    def predict(self, batch):
        words, features, *rest = batch
        self.moving.assign(0.9 * self.moving + 0.1 * self.average(features))
        return super().predict((words, features - self.moving, *rest))

    def average(self, features):
        """Mean over the global batch."""
        return all_reduce("sum", tf.reduce_sum(features, axis=0)) / self.examples


@unusual()
class FirstReplicaKeepsBooks(BatchStatistics):
    """Batch statistics; replica 0 counts steps and halves a rate for all of them."""

    def build(self, strategy):
        super().build(strategy)
        first = tf.VariableAggregation.ONLY_FIRST_REPLICA
        self.steps = tf.Variable(0, trainable=False, aggregation=first, name="steps")
        self.rate = tf.Variable(1.0, trainable=False, aggregation=first, name="rate")

    def variables(self):
        return [*self.trained(), self.steps, self.rate]

    def compute_losses(self, batch):
        losses = self.rate * super().compute_losses(batch)
        self.steps.assign_add(1)
        self.rate.assign(0.5 * self.rate)
        return losses


@unusual()
class ClassesCountedUnderStatistics(BatchStatistics):
    """Batch statistics; how often each class comes is counted over all replicas."""

    def build(self, strategy):
        super().build(strategy)
        self.classes = tf.Variable(tf.ones(OUTPUTS), trainable=False, name="classes")

    def variables(self):
        return [*self.trained(), self.classes]

    def compute_losses(self, batch):
        positive = tf.cast(batch[2] > 0, tf.float32)
        weights = 1 / tf.sqrt(tf.reduce_sum(positive * self.classes, axis=1) + 1)
        losses = weights * super().compute_losses(batch)
        kept = 0.9 * self.classes
        self.classes.assign(kept + self.count(tf.reduce_sum(positive, axis=0)))
        return losses

    def count(self, seen):
        return all_reduce("sum", seen)


@unusual()
class Dropout(Program):
    """Keras' Dropout: other random numbers in every run and on every replica."""

    def build(self, strategy):
        super().build(strategy)
        self.layer = keras.layers.Dropout(0.3)

    def predict(self, batch):
        words, features = batch[0], batch[1]
        embedded = tf.reduce_mean(tf.nn.embedding_lookup(self.table, words), axis=1)
        hidden = embedded @ self.first + features @ self.second + self.bias
        return self.layer(tf.tanh(hidden), training=True) @ self.head


@unusual()
class Keras3Dropout(Program):
    """Keras 3's Dropout: its random numbers follow from a variable of the program."""

    def build(self, strategy):
        super().build(strategy)
        self.layer = keras3_base.layers.Dropout(0.3, seed=5)

    def variables(self):
        return [*self.trained(), self.layer.seed_generator.state]

    def normalise(self, hidden):
        return hidden

    def predict(self, batch):
        words, features = batch[0], batch[1]
        embedded = tf.reduce_mean(tf.nn.embedding_lookup(self.table, words), axis=1)
        hidden = embedded @ self.first + features @ self.second + self.bias
        hidden = tf.tanh(self.normalise(hidden))
        return self.layer(hidden, training=True) @ self.head


@unusual()
class Keras3DropoutAndStatistics(Keras3Dropout, BatchStatisticsUnderMean):
    """Keras 3's Dropout behind batch statistics, and weighted means."""

    def normalise(self, hidden):
        return normalise(hidden)


@unusual()
class DropoutSeededByReplica(Program):
    """Dropout by stateless random numbers, whose seed holds the replica's number."""

    def predict(self, batch):
        words, features = batch[0], batch[1]
        embedded = tf.reduce_mean(tf.nn.embedding_lookup(self.table, words), axis=1)
        hidden = embedded @ self.first + features @ self.second + self.bias
        seed = [7, find_replica()]
        kept = tf.random.stateless_uniform(tf.shape(hidden), seed) > 0.3
        return tf.tanh(hidden) * tf.cast(kept, self.dtype) @ self.head


@unusual()
class DropoutSeededByExamples(Program):
    """Dropout by stateless random numbers, whose seed is made of the own examples."""

    def predict(self, batch):
        words, features = batch[0], batch[1]
        embedded = tf.reduce_mean(tf.nn.embedding_lookup(self.table, words), axis=1)
        hidden = embedded @ self.first + features @ self.second + self.bias
        seed = tf.stack([7, tf.cast(1000 * tf.reduce_sum(features), tf.int32)])
        kept = tf.random.stateless_uniform(tf.shape(hidden), seed) > 0.3
        return tf.tanh(hidden) * tf.cast(kept, self.dtype) @ self.head


@unusual()
class WeightsMaskedByReplica(Program):
    """A mask on the weights, which each replica draws by its own number."""

    def predict(self, batch):
        words, features = batch[0], batch[1]
        embedded = tf.reduce_mean(tf.nn.embedding_lookup(self.table, words), axis=1)
        kept = tf.random.stateless_uniform([FEATURES, HIDDEN], [7, find_replica()])
        second = self.second * tf.cast(kept > 0.3, self.dtype)
        hidden = embedded @ self.first + features @ second + self.bias
        return tf.tanh(hidden) @ self.head


@unusual()
class WeightsDrawnByReplica(Program):
    """Bayes by backprop: each replica draws weights by its own number.

    Their spread is trained; each takes an equal share of the divergence.
    """

    def build(self, strategy):
        super().build(strategy)
        self.spread = tf.Variable(tf.fill([FEATURES, HIDDEN], -2.0), name="spread")

    def trained(self):
        return [*super().trained(), self.spread]

    def predict(self, batch):
        words, features = batch[0], batch[1]
        embedded = tf.reduce_mean(tf.nn.embedding_lookup(self.table, words), axis=1)
        drawn = tf.random.stateless_normal([FEATURES, HIDDEN], [7, find_replica()])
        second = self.second + tf.nn.softplus(self.spread) * drawn
        hidden = embedded @ self.first + features @ second + self.bias
        return tf.tanh(hidden) @ self.head

    def compute_penalty(self):
        spread = tf.nn.softplus(self.spread)
        sizes = self.second**2 + spread**2
        return 0.01 * tf.reduce_sum(0.5 * sizes - tf.math.log(spread))


@unusual()
class NoisyInputs(Program):
    """Noise is added to the features, from a generator that splits for replicas."""

    def build(self, strategy):
        super().build(strategy)
        self.generator = tf.random.Generator.from_seed(3)

    def predict(self, batch):
        words, features, *rest = batch
        noise = self.generator.normal(tf.shape(features), stddev=0.1)
        return super().predict((words, features + noise, *rest))


@unusual()
class FixedShapeOnOneDevice(Program):
    """The step is written for a known number of examples on each replica."""

    def compute_losses(self, batch):
        losses = super().compute_losses(batch)
        if count_replicas() == 1:
            losses = tf.reshape(losses, [self.examples])
        return losses


@unusual()
class MixedUp(BatchStatistics):
    """Half of the features are exchanged between the examples of the shard."""

    def compute_losses(self, batch):
        words, features, targets = batch
        mixed = 0.7 * features + 0.3 * tf.reverse(features, axis=[0])
        answers = 0.7 * targets + 0.3 * tf.reverse(targets, axis=[0])
        return super().compute_losses((words, mixed, answers))


@unusual()
class PenalisedStatistics(BatchStatistics, PenalisedProgram):
    """Batch statistics and a penalty of which every replica takes an equal share."""


@unusual()
class PenalisedStatisticsUnderMean(BatchStatisticsUnderMean, PenalisedProgram):
    """Batch statistics, weighted means, and an equal share of a penalty for each."""


@unusual(clusters=("mirrored:2", "mwms:3"))
class AveragedUnderStatistics(MeanAggregator, BatchStatistics):
    """Batch statistics; N times the shares of the gradients are averaged."""


@unusual(clusters=("mirrored:2", "mwms:3"))
class AveragedUnderDropout(MeanAggregator, Dropout):
    """Dropout; N times the shares of the gradients are averaged."""


@unusual(clusters=("mirrored:2", "mwms:3"))
class AveragedUnderOwnMasks(MeanAggregator, WeightsMaskedByReplica):
    """Each replica draws a mask by its number; N times the shares are averaged."""


@unusual()
class EachLimitedUnderStatistics(BatchStatistics, OwnReduction):
    """Each sum's norm is limited, to what one device exceeds in other steps."""

    def reduce(self, gradients):
        return [tf.clip_by_norm(total, 0.58) for total in super().reduce(gradients)]
