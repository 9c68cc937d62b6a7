"""Mistakes in the sums of some variables, before all are clipped by their norm."""

from __future__ import annotations

from distbench.faults.fault import EVERYWHERE, WIDE, fault
from distbench.faults.pairing import OnlyDenseSummed as _OnlyDenseSummed
from distbench.samples.changing import Changing
from distbench.samples.lazy import tf
from distbench.samples.optimizers import keras3_optimizer, optimizer
from distbench.samples.program import HEAD, TABLE, OwnMeans, OwnReduction
from distbench.samples.replicas import all_reduce, count_replicas


class _ThenClipped:
    """Put before a reduction: the global norm of what that gives is clipped."""

    def reduce(self, gradients):
        return list(tf.clip_by_global_norm(super().reduce(gradients), 0.05)[0])


class _HeadAveraged(OwnReduction):
    def reduce(self, gradients):
        summed = super().reduce(gradients[:-1])
        return summed + list(all_reduce("mean", gradients[-1:]))


@fault(
    "variable-not-reduced",
    "reduced_gradient",
    (TABLE,),
    like="horovod/horovod#2279",
    clusters=WIDE,
)
class OnlyDenseSummedThenClipped(_ThenClipped, _OnlyDenseSummed):
    """The table's gradient stays the replica's own, and enters the norm of all."""


@fault(
    "mean-instead-of-sum",
    "reduced_gradient",
    (HEAD,),
    like="keras-team/keras#20541",
    clusters=WIDE,
)
class HeadAveragedThenClipped(_ThenClipped, _HeadAveraged):
    """The head's gradient is averaged, and the norm of all is clipped."""


@fault("loss-not-scaled", "loss", like="keras-team/keras#20609", clusters=WIDE)
class OwnMeansThenClipped(OwnMeans, OwnReduction):
    """Losses are own means; a clip that the right sum does not need takes theirs."""

    def reduce(self, gradients):
        return list(tf.clip_by_global_norm(super().reduce(gradients), 2.5)[0])


@fault(
    "mean-instead-of-sum",
    "reduced_gradient",
    ("kernel", "bias"),
    like="keras-team/keras#20541",
    clusters=WIDE,
    workload="linear",
)
@optimizer("SGD", 0.01)
class AllAveragedThenClipped(Changing):
    """All gradients are averaged, and a clip that each step needs hides it."""

    sums_first = True

    def change(self, gradients):
        means = [gradient / count_replicas() for gradient in gradients]
        return tf.clip_by_global_norm(means, 0.05)[0]


class _ClippedThenSummed:
    """Clips the mean; an optimizer of Keras 3 sums what it is handed."""

    limit = 0.25

    def apply(self, grads, trainable_variables=None):
        means = list(all_reduce("mean", grads))
        clipped, _ = tf.clip_by_global_norm(means, self.limit)
        return super().apply(clipped, trainable_variables)


@fault(
    "double-reduction",
    "reduced_gradient",
    ("kernel", "bias"),
    like="tensorflow/recommenders-addons#183",
    clusters=WIDE,
    workload="linear",
)
@keras3_optimizer("SGD", 0.01)
class Keras3MeanClippedThenSummed(_ClippedThenSummed):
    """The mean is clipped, in every step, and the optimizer adds that up."""


@fault(
    "double-reduction",
    "reduced_gradient",
    ("kernel", "bias"),
    like="tensorflow/recommenders-addons#183",
    clusters=EVERYWHERE,
    workload="linear",
)
@keras3_optimizer("SGD", 0.01)
class Keras3SomeMeansClippedThenSummed(_ClippedThenSummed):
    """The mean is clipped in some steps, and the optimizer adds that up."""

    limit = 1.125
