"""Second moments of the replicas' own gradients, about a mean that all share."""

from __future__ import annotations

from distbench.faults.fault import fault
from distbench.samples.program import TRAINED
from distbench.samples.replicas import all_reduce, count_replicas
from distbench.unusual.by_hand import (
    SquaresAboutMeanByHand,
    SquaresAboutMomentByHand,
)


@fault(
    "slot-from-local-gradient",
    "variable",
    tuple(f"square{place}" for place in range(len(TRAINED))),
    like="keras-team/keras#20541",
    clusters=("mirrored:2", "mwms:3"),
)
class OwnSquaresAboutMean(SquaresAboutMeanByHand):
    """Each replica squares its own distance from the mean, and these are averaged."""

    def take_second(self, own, total):
        del total
        return all_reduce("mean", (count_replicas() * own - self.mean) ** 2)


@fault(
    "slot-from-local-gradient",
    "variable",
    tuple(f"square{place}" for place in range(len(TRAINED))),
    like="keras-team/keras#20541",
    clusters=("mirrored:2", "mwms:3"),
)
class OwnSquaresAboutMomentSummed(SquaresAboutMomentByHand):
    """Each replica squares its own distance from the mean, and these are added up."""

    def take_second(self, own, total):
        del total
        return all_reduce("sum", (own - self.moved) ** 2)
