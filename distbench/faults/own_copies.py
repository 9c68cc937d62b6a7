"""Mistakes of users whose replicas each train a copy of their own."""

from __future__ import annotations

from distbench.faults.fault import WIDE, fault
from distbench.samples.copied import Copied, CopiedUnseen
from distbench.samples.program import BUFFERS, TRAINED
from distbench.samples.replicas import all_reduce


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


@fault(
    "mean-instead-of-sum",
    "variable",
    TRAINED,
    like="keras-team/keras#20541",
    clusters=WIDE,
)
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
