"""State that holds an N-th of what one device holds, and is taken for all of it."""

from __future__ import annotations

from distbench.faults.fault import WIDE, fault
from distbench.samples.lazy import keras2, tf
from distbench.samples.program import TRAINED, Program
from distbench.samples.replicas import all_reduce, count_replicas, update
from distbench.unusual.units import (
    LargerRateSetBetween,
    MeansByHand,
    MeansKept,
    MeanWithLargerRate,
    NormaliserInShares,
    RateByMeanOfShares,
    make_averaged,
)


@fault(
    "mean-instead-of-sum",
    "variable",
    ("average",),
    like="keras-team/keras#20541",
    clusters=WIDE,
)
class RateByShare(RateByMeanOfShares):
    """The average of the replicas' shares of the loss is taken for the loss."""

    def read_average(self):
        return self.average


_kept = fault(
    "mean-instead-of-sum",
    "slot",
    ("kept0", "kept1", "kept2", "kept3", "kept4"),
    like="keras-team/keras#20541",
)


@_kept
class MeansShown(MeansKept):
    """Means are kept of gradients, to be looked at alone: nothing adds them up."""

    def read_kept(self, gradients):
        return gradients


@_kept
class LargeMeansCounted(MeansKept):
    """Steps are counted of which the norm of the kept means is large."""

    limit = 1.5

    def build(self, strategy):
        super().build(strategy)
        self.large = make_averaged("large", ())

    def apply(self, gradients):
        super().apply(gradients)
        is_large = tf.linalg.global_norm(self.kept) > self.limit
        self.large.assign_add(tf.cast(is_large, tf.float32))


@fault(
    "mean-instead-of-sum",
    "variable",
    TRAINED,
    like="keras-team/keras#20541",
)
class MeansTaken(MeansByHand):
    """What is kept of gradients as their mean moves the variables by hand."""

    def count(self):
        return 1


@fault(
    "iterations-wrong",
    "iterations",
    ("SGD/iter",),
    like="larq/larq#629",
)
class CountedBesideMeans(MeansKept):
    """Gradients are kept as means and added up right; each step is counted twice."""

    def apply(self, gradients):
        super().apply(gradients)
        if count_replicas() > 1:
            update(self._optimizer.iterations, lambda copy: copy.assign_add(1))


_begun_otherwise = fault(
    "initial-value-differs",
    "variable",
    ("average",),
    like="keras-team/keras#18972",
    clusters=("mirrored:3", "mwms:2"),
)


@_begun_otherwise
class NormaliserByShare(NormaliserInShares):
    """Losses are divided by an average of shares, which is an N-th of what is due."""

    def read_average(self):
        return self.average


@_begun_otherwise
class BegunInShares(NormaliserByShare):
    """An average of what all replicas count begins with a share of what is expected."""

    def count(self, counts):
        return all_reduce("sum", tf.reduce_sum(counts))


@fault(
    "update-repeated",
    "variable",
    TRAINED,
    like="larq/larq#629",
)
class MeansTakenTooOften(MeansByHand):
    """N times the sum that is made of kept means moves the variables by hand."""

    def count(self):
        return count_replicas() ** 2


_rate = fault(
    "hyperparameter-differs",
    "slot",
    ("learning_rate",),
    like="keras-team/keras#20541",
    clusters=("mirrored:2", "mwms:3"),
)


@_rate
class MeanWithLargerRateOfAdam(MeanWithLargerRate):
    """Adam makes the same steps of a mean as of a sum, so the rate alone counts."""

    def make_optimizer(self):
        return keras2.Adam(0.05 * count_replicas())


@_rate
class MeanWithLargerRateClipped(MeanWithLargerRate):
    """A clip that no gradient needs sees their mean: its limit is N times as large."""

    def make_optimizer(self):
        return keras2.SGD(0.05 * count_replicas(), global_clipnorm=1000.0)


@_rate
class MeanWithLargerRateFloored(MeanWithLargerRate):
    """Elements of the mean that are smaller than any of this run count as 0."""

    def make_optimizer(self):
        class Floored(keras2.SGD):
            def update_step(self, gradient, variable):
                dense = tf.convert_to_tensor(gradient)
                kept = tf.where(tf.abs(dense) < 1e-5, tf.zeros_like(dense), dense)
                super().update_step(kept, variable)

        return Floored(0.05 * count_replicas(), momentum=0.9)


@_rate
class MeanWithLargerRateDecayed(MeanWithLargerRate):
    """Variables decay with the rate, N times as fast, by no more than is rounded."""

    def make_optimizer(self):
        return keras2.SGD(0.05 * count_replicas(), weight_decay=1e-6)


@fault(
    "update-repeated",
    "variable",
    ("seen",),
    like="larq/larq#629",
    clusters=("mirrored:2", "mwms:3"),
)
class CountedBesideLargerRate(MeanWithLargerRate):
    """A larger rate is right with a mean; a count that nobody reads is N times due."""

    def build(self, strategy):
        super().build(strategy)
        self.seen = tf.Variable(
            0.0,
            name="seen",
            trainable=False,
            aggregation=tf.VariableAggregation.SUM,
        )

    def variables(self):
        return [*self.trained(), self.seen]

    def apply(self, gradients):
        super().apply(gradients)
        self.seen.assign_add(tf.constant(12.0))


@fault(
    "mean-instead-of-sum",
    "variable",
    ("last",),
    like="keras-team/keras#20541",
    clusters=WIDE,
)
class LimitedByShare(Program):
    """Losses count less behind a large one, of which the mean of the shares is kept.

    No loss of the run is as large, but twice one is.
    """

    limit = 5.0

    def build(self, strategy):
        super().build(strategy)
        self.last = make_averaged("last", ())

    def variables(self):
        return [*self.trained(), self.last]

    def reduce_losses(self, losses, batch):
        loss = super().reduce_losses(losses, batch)
        weight = tf.minimum(1.0, self.limit / tf.maximum(self.last, 1e-6))
        self.last.assign(loss)
        return weight * loss


@_rate
class LargerRateOfSumsSetBetween(LargerRateSetBetween):
    """Gradients are added up; the rate, times the replicas, is set before a step."""

    def apply(self, gradients):
        self._optimizer.apply_gradients(zip(gradients, self.trained(), strict=True))
