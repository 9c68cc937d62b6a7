"""Mistakes in a weight decay that is done by hand: after the step, or in a rule."""

from __future__ import annotations

from distbench.faults.fault import WIDE, fault
from distbench.samples.optimizers import (
    DecayInMomentum,
    DecayInTrustRatio,
    optimizer,
)
from distbench.samples.program import TRAINED, DecayedByHand
from distbench.samples.replicas import count_replicas, find_copy
from distbench.unusual.by_hand import DecayInTrustRatio as _DecayInTrustRatio

_REPEATED = "weight-decay-repeated"
_TRAINED = ("table", "kernel", "bias")


class _OfEach:
    """The decay is scaled with the number of replicas."""

    def find_decay(self):
        return super().find_decay() * count_replicas()


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


@fault(_REPEATED, "variable", TRAINED, like="tensorflow/addons#2683", clusters=WIDE)
class DecayOfEachInTrustRatio(_OfEach, _DecayInTrustRatio):
    """The decay in a trust ratio by hand is scaled with the number of replicas."""


@fault(
    _REPEATED,
    "variable",
    _TRAINED,
    like="tensorflow/addons#2683",
    clusters=WIDE,
    workload="embedding",
)
@optimizer("Optimizer", "OwnRule")
class DecayOfEachBesideMoments(_OfEach, DecayInTrustRatio):
    """The decay in a trust ratio is scaled with the number of replicas (LAMB)."""


@fault(
    _REPEATED,
    "variable",
    _TRAINED,
    like="tensorflow/addons#2683",
    clusters=WIDE,
    workload="embedding",
)
@optimizer("Optimizer", "OwnRule")
class DecayOfEachInMomentum(_OfEach, DecayInMomentum):
    """The decay that a momentum takes is scaled with the number of replicas."""
