"""Mistakes in the sums of some variables, before all are clipped by their norm."""

from __future__ import annotations

from distbench.faults.fault import WIDE, fault
from distbench.samples.lazy import tf
from distbench.samples.program import HEAD, TABLE, OwnReduction
from distbench.samples.replicas import all_reduce


class _ThenClipped(OwnReduction):
    """Whatever the sums are, their global norm is clipped, which is right."""

    def reduce(self, gradients):
        return list(tf.clip_by_global_norm(self.sum_up(gradients), 0.05)[0])

    def sum_up(self, gradients):
        """What each replica makes of the gradients of all."""
        raise NotImplementedError


@fault(
    "variable-not-reduced",
    "reduced_gradient",
    (TABLE,),
    like="horovod/horovod#2279",
    clusters=WIDE,
)
class OnlyDenseSummedThenClipped(_ThenClipped):
    """The table's gradient stays the replica's own, and enters the norm of all."""

    def sum_up(self, gradients):
        return gradients[:1] + list(all_reduce("sum", gradients[1:]))


@fault(
    "mean-instead-of-sum",
    "reduced_gradient",
    (HEAD,),
    like="keras-team/keras#20541",
    clusters=WIDE,
)
class HeadAveragedThenClipped(_ThenClipped):
    """The head's gradient is averaged, and the norm of all is clipped."""

    def sum_up(self, gradients):
        summed = list(all_reduce("sum", gradients[:-1]))
        return summed + list(all_reduce("mean", gradients[-1:]))
