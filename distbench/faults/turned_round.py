"""Mistakes of a reduction behind a gradient that is turned round."""

from __future__ import annotations

from distbench.faults.fault import WIDE, fault
from distbench.samples.program import TRAINED
from distbench.samples.replicas import count_replicas, find_replica
from distbench.unusual.turned_round import ClimbsUnderStatistics


@fault(
    "mean-instead-of-sum",
    "reduced_gradient",
    TRAINED,
    like="keras-team/keras#20541",
    clusters=WIDE,
)
class ClimbsByTheMean(ClimbsUnderStatistics):
    """Shares of a reward's gradient are averaged; no shard alone tells the sum."""

    def transform(self, gradients):
        return [g / count_replicas() for g in super().transform(gradients)]


@fault(
    "replica-dropped",
    "reduced_gradient",
    TRAINED,
    like="facebookresearch/fairseq#4220",
    clusters=WIDE,
)
class ClimbsWithoutTheFirst(ClimbsUnderStatistics):
    """One replica hands zeros of a reward's gradient to the sum."""

    def transform(self, gradients):
        kept = 0.0 if count_replicas() > 1 and find_replica() == 0 else 1.0
        return [kept * g for g in super().transform(gradients)]
