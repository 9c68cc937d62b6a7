"""Mistakes of replicas that keep back a part of their own gradients."""

from __future__ import annotations

from distbench.faults.fault import fault
from distbench.samples.lazy import tf
from distbench.samples.program import BIAS, TRAINED
from distbench.samples.replicas import all_reduce, count_replicas
from distbench.unusual.kept_back import (
    LargestOfSum,
    RowsKeptBackUnderStatistics,
    SignsAsLargeAsSum,
)

_MOVED = tuple(path for path in TRAINED if path != BIAS)
"""Batch statistics take away what a bias adds."""


@fault(
    "mean-instead-of-sum",
    "variable",
    _MOVED,
    like="horovod/horovod#1829",
    clusters=("mirrored:2", "mwms:3"),
)
class MeanOfWhatIsSent(RowsKeptBackUnderStatistics):
    """Replicas average what they send of gradients of the global batch."""

    def reduce(self, gradient):
        return all_reduce("mean", gradient)


@fault(
    "double-reduction",
    "reduced_gradient",
    TRAINED,
    like="horovod/horovod#1829",
    clusters=("mirrored:2", "mwms:3"),
)
class WholeKeptByEach(LargestOfSum):
    """Each replica keeps what is not sent of the sum, and adds it to its own part."""

    def take_rest(self, own, total):
        return total


@fault(
    "unexplained",
    "variable",
    _MOVED,
    like="horovod/horovod#1829",
    clusters=("mirrored:2", "mwms:3"),
)
class HalfKeptBack(RowsKeptBackUnderStatistics):
    """Among several replicas half of what is kept back is lost."""

    def transform(self, gradients):
        handed = super().transform(gradients)
        if count_replicas() > 1:
            for kept in self.kept:
                kept.assign(0.5 * kept)
        return handed


@fault(
    "nonlinear-before-reduction",
    "reduced_gradient",
    TRAINED,
    like="horovod/horovod#3786",
    clusters=("mirrored:2", "mwms:3"),
)
class SignsAsLargeAsAddends(SignsAsLargeAsSum):
    """Signs of the sum are as large as the replicas' own gradients are together."""

    def measure(self, own, total):
        return all_reduce("sum", tf.reduce_mean(tf.abs(own)))
