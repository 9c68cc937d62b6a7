"""Correct terms of statistics of own, or all, examples beside shares of a loss."""

from __future__ import annotations

from distbench.samples.lazy import tf
from distbench.samples.program import OUTPUTS, Program
from distbench.samples.replicas import all_reduce, count_replicas
from distbench.unusual.exchange import ALIKE
from distbench.unusual.program import unusual


class BesideShares(Program):
    """Beside shares of the loss stands a term of all of the own outputs."""

    def reduce_losses(self, losses, batch):
        term = self.find_term(batch) * self.weigh(tf.size(losses))
        return super().reduce_losses(losses, batch) + term

    def find_term(self, batch):
        """What is made of statistics of the own outputs."""
        raise NotImplementedError

    def weigh(self, count):
        """What it counts: as much as the replica has of all examples."""
        share = tf.cast(count, self.dtype) / self.examples
        return 1.0 if count_replicas() == 1 else share


@unusual()
class SpreadOverFloor(BesideShares):
    """How much the own outputs vary counts from a floor on, and not on all replicas."""

    def data(self, step):
        words, features, targets = super().data(step)
        if step == 0:
            features[-7:] *= 4  # Later all replicas are below the floor.
        return words, features, targets

    def find_term(self, batch):
        spread = tf.math.reduce_variance(self.predict(batch), axis=0)
        return tf.reduce_sum(tf.maximum(spread, 0.25))


@unusual()
class ViewsWithoutCorrelation(BesideShares):
    """A hinge and the covariances of two views' outputs, each a sum of a few terms."""

    def find_term(self, batch):
        words, features = batch[0], batch[1]
        views = [self.predict((words, f)) for f in (features, 1.5 * features + 0.1)]
        return tf.add_n([self.spread_out(view) for view in views])

    def spread_out(self, outputs):
        """What outputs vary too little, and have in common."""
        apart = outputs - tf.reduce_mean(outputs, axis=0)
        deviations = tf.sqrt(tf.reduce_mean(apart**2, axis=0) + 1e-4)
        count = tf.cast(tf.shape(outputs)[0], self.dtype)
        products = tf.matmul(apart, apart, transpose_a=True) / (count - 1)
        own = tf.reduce_sum(tf.linalg.diag_part(products) ** 2)
        shared = tf.reduce_sum(products**2) - own
        return tf.reduce_mean(tf.nn.relu(1 - deviations)) + shared / OUTPUTS


class LimitedMean(Program):
    """Beside shares of the loss, a limit is held against the mean of all outputs."""

    def reduce_losses(self, losses, batch):
        squares = tf.reduce_sum(self.predict(batch) ** 2, axis=0) / self.examples
        term = tf.reduce_sum(self.limit(self.add_up(squares)))
        return super().reduce_losses(losses, batch) + term / self.count()

    def add_up(self, squares):
        """The mean over all examples, of the own share of it."""
        return all_reduce("sum", squares)

    def count(self):
        """How many replicas have the term."""
        return count_replicas()

    def limit(self, mean):
        """What counts of it."""
        raise NotImplementedError


@unusual(clusters=ALIKE)
class FloorUnderTheMeanOfAll(LimitedMean):
    """Free bits: what the mean over all examples has above a floor counts."""

    def limit(self, mean):
        return tf.maximum(mean, 0.09)


@unusual(clusters=ALIKE)
class HingeOfTheMeanOfAll(LimitedMean):
    """A hinge that the mean over all examples has to reach."""

    def limit(self, mean):
        return tf.nn.relu(0.09 - mean)
