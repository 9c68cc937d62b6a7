"""Mistakes in programs that leave out a step whose loss is too large."""

from __future__ import annotations

from distbench.faults.fault import WIDE, fault
from distbench.samples.program import TRAINED
from distbench.samples.replicas import count_replicas
from distbench.unusual.spikes import LeavesSpikesOut


@fault(
    "replica-dropped",
    "reduced_gradient",
    TRAINED,
    like="deepspeedai/DeepSpeed#490",
    clusters=WIDE,
)
class LeavesOwnSpikesOut(LeavesSpikesOut):
    """Each replica goes by N times its own loss, and leaves its gradients out alone."""

    def measure(self, loss):
        return count_replicas() * loss
