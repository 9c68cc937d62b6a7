"""Mistakes of users whose replicas each train a copy of their own."""

from __future__ import annotations

from distbench.faults.fault import WIDE, fault
from distbench.samples.copied import Copied, CopiedMean, CopiedUnseen
from distbench.samples.lazy import tf
from distbench.samples.program import BUFFERS, TRAINED
from distbench.samples.replicas import all_reduce, count_replicas
from distbench.unusual.local_state import OwnAverageReadAsMean, OwnCopiesReadAsMean

_divided = fault(
    "mean-instead-of-sum",
    "variable",
    TRAINED,
    like="keras-team/keras#20541",
    clusters=WIDE,
)


@fault(
    "missing-reduction",
    "variable",
    TRAINED,
    like="keras-team/keras#19467",
)
class NobodySumsForOwnCopies(Copied):
    """Every replica moves its own copy by its own gradient; the first one is read."""

    def reduce(self, gradient):
        return gradient


@_divided
class MeanForOwnCopies(Copied):
    """Every replica moves its own momentum by the mean, in place of the sum."""

    def reduce(self, gradient):
        return all_reduce("mean", gradient)


@fault(
    "mean-instead-of-sum",
    "variable",
    BUFFERS,
    like="keras-team/keras#20541",
    clusters=WIDE,
)
class MeanOfUnseenForOwnCopies(CopiedUnseen):
    """Every replica moves its momentum by the mean of gradients that no tap sees."""

    def reduce(self, gradient):
        return all_reduce("mean", gradient)


@fault(
    "double-reduction",
    "variable",
    BUFFERS,
    like="horovod/horovod#2654",
    clusters=WIDE,
)
class UnseenSummedTwiceForOwnCopies(CopiedUnseen):
    """The sum is summed once more before every replica's own momentum takes it."""

    def reduce(self, gradient):
        return all_reduce("sum", super().reduce(gradient))


@_divided
class OwnStepsOfShares(CopiedMean):
    """Own copies step by a share of the gradient, and their mean by an N-th of it."""

    def step(self, value, gradient):
        return value - self.rate * gradient


@_divided
class OwnStepsOfSharesApart(OwnStepsOfShares, OwnCopiesReadAsMean):
    """The same, and nothing averages the copies but who reads them."""


@fault("replicas-diverged", "variable", TRAINED, like="horovod/horovod#3786")
class OwnStepsBySigns(OwnCopiesReadAsMean):
    """Own copies step by the signs of the own gradient, and nothing averages them."""

    def step(self, value, gradient):
        return value - self.rate * tf.sign(gradient)


@fault("replicas-diverged", "loss", ("", *TRAINED), like="keras-team/keras#19467")
class AveragedEverySecondStep(CopiedMean):
    """Local SGD: replicas go on from copies of their own between two averages."""

    def build(self, strategy):
        super().build(strategy)
        self.number = tf.Variable(
            0,
            trainable=False,
            name="number",
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )

    def variables(self):
        return [*self.trained(), self.number]

    def apply(self, gradients):
        super().apply(gradients)
        self.number.assign_add(1)

    def average(self, value):
        return tf.where(self.number % 2 == 1, super().average(value), value)


@fault(
    "hyperparameter-differs",
    "variable",
    ("moving",),
    like="keras-team/keras#18668",
    clusters=WIDE,
)
class MomentumByReplicas(OwnAverageReadAsMean):
    """A moving mean of all examples forgets as in N steps in each one."""

    def find_momentum(self):
        return super().find_momentum() ** count_replicas()
