"""Mistakes in state that a step assigns before it makes its loss of it."""

from __future__ import annotations

from distbench.faults.fault import fault
from distbench.unusual.assigned_first import (
    DividedByMovingLoss,
    DividedByMovingWeight,
)

_LIKE = "tensorflow/tensorflow#23792"
_CLUSTERS = ("mirrored:3", "mwms:2")


class _Averages:
    """Put before a program: what each replica has alone is assigned by all."""

    def move(self, own):
        self.weight.assign(0.75 * self.weight + 0.25 * own)


@fault(
    "mean-instead-of-sum",
    "variable",
    ("weight",),
    like="keras-team/keras#20541",
    clusters=_CLUSTERS,
)
class DividedByMeanOfOwnWeights(_Averages, DividedByMovingWeight):
    """What the own examples weigh is averaged over the replicas and not added up."""


@fault("scale-error", "variable", ("weight",), like=_LIKE, clusters=_CLUSTERS)
class DividedByWeightOfEach(DividedByMovingWeight):
    """All replicas assign the same mean, and that is summed."""

    aggregation = "SUM"


@fault("scale-error", "variable", ("weight",), like=_LIKE, clusters=_CLUSTERS)
class DividedByDecayedOften(DividedByMovingWeight):
    """Own weights are added up rightly, and as many times as often the mean decays."""

    aggregation = "SUM"

    def move(self, own):
        self.weight.assign_add(0.25 * (own - self.weight))


@fault("scale-error", "variable", ("weight",), like=_LIKE, clusters=_CLUSTERS)
class DividedByLossOfEach(DividedByMovingLoss):
    """All replicas assign the same mean of the loss, and that is summed."""

    aggregation = "SUM"


@fault(
    "mean-instead-of-sum",
    "variable",
    ("weight",),
    like="keras-team/keras#20541",
    clusters=_CLUSTERS,
)
class DividedByMeanOfShares(_Averages, DividedByMovingLoss):
    """The shares of the loss are averaged over the replicas and not added up."""
