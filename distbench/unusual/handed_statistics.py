"""Correct programs that hand statistics of their examples to an optimizer."""

from __future__ import annotations

from distbench.samples.lazy import tf
from distbench.samples.program import HIDDEN, Program
from distbench.samples.replicas import all_reduce, count_replicas
from distbench.unusual.program import unusual


@unusual()
class StatisticsAsGradients(Program):
    """A moving mean and variance whose gradients are what the optimizer moves them by.

    The output is made of what they were before, so no example meets those of others.
    """

    def build(self, strategy):
        self.mean = tf.Variable(tf.zeros([HIDDEN], self.dtype), name="mean")
        self.variance = tf.Variable(tf.ones([HIDDEN], self.dtype), name="variance")
        super().build(strategy)

    def trained(self):
        return [*super().trained(), self.mean, self.variance]

    def predict(self, batch):
        words, features = batch[0], batch[1]
        embedded = tf.reduce_mean(tf.nn.embedding_lookup(self.table, words), axis=1)
        hidden = embedded @ self.first + features @ self.second + self.bias
        return tf.tanh(self.normalize(hidden)) @ self.head

    def normalize(self, hidden):
        """By what was kept; what flows back to that is its distance from this batch."""
        mean, variance = tf.nn.moments(tf.stop_gradient(hidden), [0])

        @tf.custom_gradient
        def pass_on(values, kept_mean, kept_variance):
            def gradient(upstream):
                return upstream, kept_mean - mean, kept_variance - variance

            return tf.identity(values), gradient

        before = tf.stop_gradient(self.mean), tf.stop_gradient(self.variance)
        scaled = (hidden - before[0]) / tf.sqrt(before[1] + 0.1)
        return pass_on(
            scaled, tf.convert_to_tensor(self.mean), tf.convert_to_tensor(self.variance)
        )

    def replica_step(self, batch):
        with tf.GradientTape() as tape:
            loss = self.reduce_losses(self.compute_losses(batch), batch)
        gradients = tape.gradient(loss, self.trained())
        if count_replicas() > 1:
            share = tf.cast(tf.shape(batch[1])[0] / self.examples, self.dtype)
            *others, mean, variance = gradients
            apart = self.find_square(mean - all_reduce("sum", share * mean))
            gradients = [
                *others,
                self.weigh_mean(mean, share),
                share * (variance - apart),
            ]
        self.apply(gradients)
        return loss

    def find_square(self, distance):
        """What the variance of all has beside those of the shards."""
        return distance**2

    def weigh_mean(self, mean, share):
        """A replica's share of a mean over all examples."""
        return share * mean
