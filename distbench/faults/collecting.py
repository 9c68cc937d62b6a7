"""Mistakes with accumulators of a program."""

from __future__ import annotations

from distbench.faults.fault import WIDE, fault
from distbench.samples.lazy import tf
from distbench.samples.program import BUFFERS, FIRST, HEAD, SECOND, TRAINED
from distbench.samples.replicas import all_reduce, count_replicas
from distbench.unusual.collecting import (
    AppliedEverySecondStep as _AppliedEverySecondStep,
)
from distbench.unusual.collecting import CollectedAloneByHand as _CollectedAloneByHand
from distbench.unusual.collecting import CollectedBySums as _CollectedBySums
from distbench.unusual.collecting import CollectedForTwoSteps as _CollectedForTwoSteps
from distbench.unusual.collecting import SentInRankOne as _SentInRankOne

_COLLECTED = tuple(f"collected{place}" for place in range(len(TRAINED)))
_KEPT = tuple(f"kept{place}" for place in range(len(TRAINED)))


@fault(
    "mean-instead-of-sum",
    "reduced_gradient",
    TRAINED,
    like="OpenNMT/OpenNMT-tf#705",
    clusters=WIDE,
)
class CollectedByMeans(_CollectedBySums):
    """Accumulators average what every replica assigns, and the optimizer takes that."""

    aggregation = "MEAN"


@fault(
    "mean-instead-of-sum",
    "reduced_gradient",
    TRAINED,
    like="OpenNMT/OpenNMT-tf#705",
    clusters=WIDE,
)
class CollectedByMeansAndAveraged(CollectedByMeans):
    """Accumulators average what every replica assigns, and it is averaged again."""

    def reduce(self, gradients):
        return [total / count_replicas() for total in super().reduce(gradients)]


@fault("stale-gradient", "variable", _COLLECTED, like="OpenNMT/OpenNMT-tf#705")
class NeverCleared(_CollectedForTwoSteps):
    """On a cluster nobody clears the accumulators, which go on to collect."""

    def clears(self, is_due):
        return is_due if count_replicas() == 1 else tf.zeros_like(is_due)


@fault(
    "slot-from-local-gradient", "variable", _COLLECTED, like="OpenNMT/OpenNMT-tf#705"
)
class CollectedInCopies(_CollectedForTwoSteps):
    """Each replica collects its own gradients in its copy of what all should share."""

    aggregation = "NONE"

    def reduce(self, gradients):
        self.taken.assign_add(1)
        is_due = self.taken % 2 == 0
        handed = []
        for variable, gradient in zip(self.collected, gradients, strict=True):
            total = variable + tf.convert_to_tensor(gradient)
            handed.append(tf.where(is_due, total, tf.zeros_like(total)))
            variable.assign(tf.where(is_due, tf.zeros_like(total), total))
        return all_reduce("sum", handed)


@fault(
    "mean-instead-of-sum",
    "reduced_gradient",
    (FIRST, SECOND, HEAD),
    like="keras-team/keras#20541",
)
class RowsOfRankOneAveraged(_SentInRankOne):
    """The rows that replicas send are averaged, while the columns are added up."""

    def join(self, row):
        return all_reduce("mean", row)


@fault(
    "double-reduction", "variable", (*_KEPT, *TRAINED), like="keras-team/keras#19308"
)
class KeptSumsAreSummedAgain(_AppliedEverySecondStep):
    """What is kept for the second step is summed over the replicas twice."""

    def reduce(self, gradient):
        return super().reduce(super().reduce(gradient))


@fault(
    "nonlinear-before-reduction",
    "variable",
    BUFFERS,
    like="deepspeedai/DeepSpeed#7773",
    clusters=("mirrored:3", "mwms:2"),
)
class CollectedAloneAndClipped(_CollectedAloneByHand):
    """What a replica has collected of two steps is clipped before it is summed."""

    def prepare(self, collected):
        return tf.clip_by_value(collected, -0.1, 0.1)
