"""Correct programs that keep examples, or count in floating point."""

from __future__ import annotations

from distbench.samples.lazy import tf
from distbench.samples.program import FEATURES, OUTPUTS, Program
from distbench.samples.replicas import all_reduce, gather
from distbench.unusual.exchange import ALIKE
from distbench.unusual.program import unusual


@unusual(clusters=ALIKE)
class QueueOfAll(Program):
    """A queue takes what all replicas predict, in the order of the examples."""

    def build(self, strategy):
        super().build(strategy)
        start = tf.random.stateless_normal([2 * self.examples, OUTPUTS], [1, 2])
        mean = tf.VariableAggregation.MEAN
        self.queue = tf.Variable(start, name="queue", trainable=False, aggregation=mean)

    def variables(self):
        return [*self.trained(), self.queue]

    def compute_losses(self, batch):
        likeness = tf.matmul(self.predict(batch), self.queue, transpose_b=True)
        return super().compute_losses(batch) + tf.reduce_logsumexp(likeness, axis=1)

    def replica_step(self, batch):
        loss = super().replica_step(batch)
        self.queue.assign(self.push(self.predict(batch)))
        return loss

    def push(self, keys):
        """The queue with new keys at its end."""
        keys = gather(tf.identity(keys))
        return tf.concat([self.queue, keys], axis=0)[tf.shape(keys)[0] :]


@unusual()
class DrawsByCount(Program):
    """The step's number, in floating point, is the seed of a mask for all examples."""

    def build(self, strategy):
        super().build(strategy)
        only_first = tf.VariableAggregation.ONLY_FIRST_REPLICA
        self.taken = tf.Variable(
            0.0, name="taken", trainable=False, aggregation=only_first
        )

    def variables(self):
        return [*self.trained(), self.taken]

    def compute_losses(self, batch):
        seed = tf.stack([tf.cast(self.taken, tf.int32), 7])
        mask = tf.random.stateless_uniform([OUTPUTS], seed)
        return tf.reduce_sum(mask * (self.predict(batch) - batch[2]) ** 2, axis=1)

    def apply(self, gradients):
        super().apply(gradients)
        self.taken.assign_add(1.0)


@unusual()
class TargetsLessRunningMean(Program):
    """Targets are taken less a running mean, which takes those of the step first."""

    def build(self, strategy):
        super().build(strategy)
        self.mean = tf.Variable(
            tf.zeros(OUTPUTS),
            name="mean",
            trainable=False,
            aggregation=tf.VariableAggregation.MEAN,
        )

    def variables(self):
        return [*super().variables(), self.mean]

    def compute_losses(self, batch):
        self.mean.assign(0.5 * self.mean + 0.5 * self.find_mean(batch[2]))
        targets = batch[2] - self.mean
        return tf.reduce_sum((self.predict(batch) - targets) ** 2, axis=1)

    def find_mean(self, targets):
        """The mean of all replicas' targets."""
        return all_reduce("sum", tf.reduce_sum(targets, axis=0)) / self.examples


@unusual()
class FeaturesByRunningDeviation(Program):
    """Features are divided by a running deviation of those of all replicas."""

    def build(self, strategy):
        super().build(strategy)
        self.deviation = tf.Variable(
            tf.ones(FEATURES),
            name="deviation",
            trainable=False,
            aggregation=tf.VariableAggregation.MEAN,
        )

    def variables(self):
        return [*super().variables(), self.deviation]

    def compute_losses(self, batch):
        words, features, targets = batch
        found = self.measure(features)
        self.deviation.assign(0.5 * self.deviation + 0.5 * found)
        return super().compute_losses((words, features / self.deviation, targets))

    def measure(self, features):
        """The deviation of all replicas' features."""
        sums = [tf.reduce_sum(features, axis=0), tf.reduce_sum(features**2, axis=0)]
        first, second = (total / self.examples for total in all_reduce("sum", sums))
        return tf.sqrt(second - first**2)
