"""Mistakes of programs whose state has another shape on a cluster."""

from __future__ import annotations

from distbench.faults.fault import fault
from distbench.samples.program import TRAINED
from distbench.samples.replicas import all_reduce
from distbench.unusual.reshaped import MomentumInParts


@fault(
    "mean-instead-of-sum",
    "variable",
    TRAINED,
    like="keras-team/keras#20541",
    clusters=("mirrored:2", "mwms:3"),
)
class PartsOfTheMean(MomentumInParts):
    """The parts are those of the mean of shares of the whole batch's gradients."""

    def reduce(self, gradient):
        return all_reduce("mean", gradient)
