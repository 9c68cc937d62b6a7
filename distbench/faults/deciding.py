"""Mistakes in steps that decide by the loss how far they go."""

from __future__ import annotations

from distbench.faults.fault import fault
from distbench.samples.program import TRAINED
from distbench.samples.replicas import count_replicas
from distbench.unusual.deciding import HalvesStepsOfSmallLosses


@fault(
    "replicas-diverged",
    "variable",
    TRAINED,
    like="rmchurch/disruptcnn#3",
    clusters=("mirrored:2", "mwms:3"),
)
class HalvesStepsOfOwnSmallLosses(HalvesStepsOfSmallLosses):
    """Each replica decides by its own loss, and some decide as one device does."""

    def measure(self, loss):
        return count_replicas() * loss
