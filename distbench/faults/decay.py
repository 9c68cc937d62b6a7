"""Mistakes in a weight decay that is done by hand: after the step, or in a rule."""

from __future__ import annotations

from distbench.faults.fault import WIDE, fault
from distbench.samples.optimizers import (
    DecayBeforeTheSum,
    DecayInMomentum,
    DecayInTrustRatio,
    DecayOfRows,
    DecayOfSigns,
    SoftThreshold,
    optimizer,
)
from distbench.samples.program import TRAINED, DecayedByHand
from distbench.samples.replicas import count_replicas, find_copy, find_replica
from distbench.unusual.by_hand import DecayInTrustRatio as _DecayInTrustRatio

_REPEATED = "weight-decay-repeated"
_TRAINED = ("table", "kernel", "bias")
_of_each = fault(
    _REPEATED,
    "variable",
    _TRAINED,
    like="tensorflow/addons#2683",
    clusters=WIDE,
    workload="embedding",
)
"""A rule decays once for each replica."""
_left_out = fault(
    "weight-decay-missing",
    "variable",
    _TRAINED,
    like="tensorflow/tensorflow#25066",
    workload="embedding",
)
"""A rule does not decay on a cluster."""


class _OfEach:
    """The decay is scaled with the number of replicas."""

    def find_decay(self):
        return super().find_decay() * count_replicas()


class _OnOneDevice:
    """There is no decay on a cluster."""

    def find_decay(self):
        return super().find_decay() if count_replicas() == 1 else 0.0


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


@_of_each
@optimizer("Optimizer", "OwnRule")
class DecayOfEachBesideMoments(_OfEach, DecayInTrustRatio):
    """The decay in a trust ratio is scaled with the number of replicas (LAMB)."""


@_of_each
@optimizer("Optimizer", "OwnRule")
class DecayOfEachInMomentum(_OfEach, DecayInMomentum):
    """The decay that a momentum takes is scaled with the number of replicas."""


@_of_each
@optimizer("Optimizer", "OwnRule")
class SignsDecayForEachReplica(_OfEach, DecayOfSigns):
    """A decay along the signs, as of L1, is scaled with the number of replicas."""


@_left_out
@optimizer("Optimizer", "OwnRule")
class SignsDecayOnOneDeviceAlone(_OnOneDevice, DecayOfSigns):
    """A decay along the signs, as of L1, is left out on a cluster."""


@_of_each
@optimizer("Optimizer", "OwnRule")
class ThresholdOfEachReplica(_OfEach, SoftThreshold):
    """A soft threshold is scaled with the number of replicas."""

    decay = 0.05


@_left_out
@optimizer("Optimizer", "OwnRule")
class ThresholdOnOneDeviceAlone(_OnOneDevice, SoftThreshold):
    """On a cluster no threshold is applied after the step."""

    decay = 0.05


@fault(
    _REPEATED,
    "reduced_gradient",
    _TRAINED,
    like="keras-team/keras#19891",
    clusters=("mirrored:3", "mwms:4"),
    workload="embedding",
)
@optimizer("SGD", 0.1, momentum=0.9)
class AllButTheFirstAddTheDecay(DecayBeforeTheSum):
    """All replicas but the first one add the decay to their own gradients."""

    def find_share(self):
        return 1.0 if count_replicas() == 1 or find_replica() > 0 else 0.0


@fault(
    _REPEATED,
    "reduced_gradient",
    ("kernel", "bias"),
    like="tensorflow/addons#2683",
    clusters=("mirrored:3", "mwms:4"),
    workload="linear",
)
@optimizer("SGD", 0.1, momentum=0.9)
class DecayInRootsOfShares(DecayBeforeTheSum):
    """Every replica adds the decay by the root of N, as a rate would be scaled."""

    def find_share(self):
        return 1.0 / count_replicas() ** 0.5


@fault(
    "weight-decay-missing",
    "reduced_gradient",
    _TRAINED,
    like="tensorflow/tensorflow#25066",
    clusters=WIDE,
    workload="embedding",
)
@optimizer("SGD", 0.1, momentum=0.9)
class FirstAddsItsShareAlone(DecayBeforeTheSum):
    """The first replica alone adds its N-th of the decay to its gradient."""

    def find_share(self):
        return 1.0 / count_replicas() if find_replica() == 0 else 0.0


@fault(
    "weight-decay-missing",
    "reduced_gradient",
    ("kernel", "bias"),
    like="tensorflow/tensorflow#25066",
    workload="linear",
)
@optimizer("SGD", 0.1, momentum=0.9)
class NobodyAddsTheDecay(DecayBeforeTheSum):
    """On a cluster no replica adds the decay to its gradient."""

    def find_share(self):
        return 1.0 if count_replicas() == 1 else 0.0


class _DecayOfOwnRows(DecayOfRows):
    def _aggregate_gradients(self, grads_and_vars):
        pairs = [(self.decay_rows(g, v), v) for g, v in grads_and_vars]
        return super()._aggregate_gradients(pairs)


@fault(
    _REPEATED,
    "reduced_gradient",
    ("table",),
    like="keras-team/keras#19891",
    clusters=WIDE,
    workload="embedding",
)
@optimizer("SGD", 0.1)
class DecayOfOwnRows(_DecayOfOwnRows):
    """Every replica adds the decay to the rows that its own examples have."""


@fault(
    _REPEATED,
    "reduced_gradient",
    ("table",),
    like="keras-team/keras#19891",
    clusters=("mirrored:3", "mwms:4"),
    workload="embedding",
)
@optimizer("SGD", 0.1)
class DecayInSharesOfOwnRows(_DecayOfOwnRows):
    """Every replica adds 1/N of the decay to its own rows, which not all have."""

    def find_share(self):
        return 1.0 / count_replicas()
