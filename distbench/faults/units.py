"""State that holds an N-th of what one device holds, and is taken for all of it."""

from __future__ import annotations

from distbench.faults.fault import WIDE, fault
from distbench.unusual.units import RateByMeanOfShares


@fault(
    "mean-instead-of-sum",
    "variable",
    ("average",),
    like="keras-team/keras#20541",
    clusters=WIDE,
)
class RateByShare(RateByMeanOfShares):
    """The average of the replicas' shares of the loss is taken for the loss."""

    def read_average(self):
        return self.average
