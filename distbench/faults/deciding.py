"""Mistakes in steps of which the loss decides how far they go, or whether at all."""

from __future__ import annotations

from distbench.faults.fault import WIDE, fault
from distbench.samples.program import TRAINED
from distbench.samples.replicas import count_replicas
from distbench.unusual.deciding import HalvesStepsOfSmallLosses, LeavesSpikesOut


class _ByOwnLoss:
    def measure(self, loss):
        return count_replicas() * loss


@fault(
    "replicas-diverged",
    "variable",
    TRAINED,
    like="rmchurch/disruptcnn#3",
    clusters=("mirrored:2", "mwms:3"),
)
class HalvesStepsOfOwnSmallLosses(_ByOwnLoss, HalvesStepsOfSmallLosses):
    """Each replica decides by its own loss, and some decide as one device does."""


@fault(
    "replica-dropped",
    "reduced_gradient",
    TRAINED,
    like="deepspeedai/DeepSpeed#490",
    clusters=WIDE,
)
class LeavesOwnSpikesOut(_ByOwnLoss, LeavesSpikesOut):
    """Each replica goes by N times its own loss, and leaves its gradients out alone."""
