"""Mistakes by hand where nobody says how losses combine: the state tells the sum."""

from __future__ import annotations

from functools import partial

from distbench.faults.fault import WIDE, fault
from distbench.samples.lazy import tf
from distbench.samples.program import (
    BUFFERS,
    TRAINED,
    AdamByHand,
    ByHand,
    MomentumByHand,
    OwnMeans,
    TimesShare,
)
from distbench.samples.replicas import all_reduce
from distbench.unusual.by_hand import CountedMicroStepsByHand

_OWN_MEAN = "keras-team/keras#19891"
_own_mean = partial(fault, "loss-not-scaled", "loss", like=_OWN_MEAN)


class Undeclared:
    """Put before a program: its losses may be shares of a sum, or of a mean."""

    loss_reduction = None


@_own_mean(clusters=WIDE)
class UndeclaredOwnMeansByHand(Undeclared, OwnMeans, ByHand):
    """Gradients of own means are added up, and nobody says what losses are."""


@_own_mean()
class UndeclaredOwnMeansForMomentum(Undeclared, OwnMeans, MomentumByHand):
    """A momentum by hand takes the sum of gradients of own means."""


@_own_mean()
class UndeclaredOwnMeansForMoments(Undeclared, OwnMeans, AdamByHand):
    """Two moments by hand take the sum of gradients of own means."""


@_own_mean(clusters=WIDE)
class WholeTermByHand(Undeclared, ByHand):
    """Beside shares stands what is made of the mean over all, whole on each replica."""

    def reduce_losses(self, losses, batch):
        outputs = all_reduce("sum", tf.reduce_sum(self.predict(batch), 0))
        term = tf.reduce_sum((outputs / self.examples - 1.0) ** 2)
        return super().reduce_losses(losses, batch) + term


@fault("mean-of-means", "loss", like="keras-team/keras#19891", clusters=WIDE)
class UndeclaredMeansAveragedByHand(Undeclared, OwnMeans, MomentumByHand):
    """Gradients of own means of uneven shards are averaged by hand."""

    def reduce(self, gradient):
        return all_reduce("mean", gradient)


@fault("loss-not-scaled", "local_gradient", TRAINED, like=_OWN_MEAN, clusters=WIDE)
class MicroStepsTimesShareByHand(Undeclared, TimesShare, CountedMicroStepsByHand):
    """Each micro-step has N times its share, and a momentum by hand takes the sum."""


@_own_mean(variables=("", *TRAINED))
class MicroStepsOfOwnMeansByHand(Undeclared, CountedMicroStepsByHand):
    """Each micro-step has the mean of what counts of it, and nobody divides by N."""

    def reduce_losses(self, losses, batch):
        weights = self.weigh(batch)
        mean = tf.math.divide_no_nan(
            tf.reduce_sum(losses * weights), tf.reduce_sum(weights)
        )
        return mean / self.parts


@fault(
    "nonlinear-before-reduction",
    "variable",
    (*TRAINED, *BUFFERS),
    like="horovod/horovod#3786",
    clusters=WIDE,
)
class MicroStepsClippedBeforeTheirMean(MicroStepsTimesShareByHand):
    """What each replica adds up, N times its share, is clipped, and then averaged."""

    def transform(self, gradients):
        return tf.clip_by_global_norm(gradients, 0.05)[0]

    def reduce(self, gradient):
        return all_reduce("mean", gradient)
