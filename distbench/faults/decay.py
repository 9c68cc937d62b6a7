"""Mistakes in a weight decay that is done by hand, after the optimizer's step."""

from __future__ import annotations

from distbench.faults.fault import WIDE, fault
from distbench.samples.program import TRAINED, DecayedByHand
from distbench.samples.replicas import count_replicas, find_copy

_REPEATED = "weight-decay-repeated"


@fault(_REPEATED, "variable", TRAINED, like="keras-team/keras#19891", clusters=WIDE)
class ShrunkForEachReplica(DecayedByHand):
    """The copies are shrunk inside a loop over the replicas."""

    def shrink(self, copy):
        for _ in range(count_replicas()):
            super().shrink(copy)


@fault(_REPEATED, "variable", TRAINED, like="tensorflow/addons#2683", clusters=WIDE)
class ShrunkByScaledRate(DecayedByHand):
    """The decay is scaled with the number of replicas."""

    def shrink(self, copy):
        copy.assign_sub(count_replicas() * self.decay * copy)


@fault(
    "weight-decay-missing",
    "variable",
    TRAINED,
    like="tensorflow/tensorflow#25066",
    replicas=(1,),
)
class FirstCopyIsShrunk(DecayedByHand):
    """Only the first copy of every variable is shrunk."""

    def shrink(self, copy):
        if find_copy(copy) == 0:
            super().shrink(copy)
