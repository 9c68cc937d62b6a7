"""Mistakes beside random numbers, in whose scatter they are smaller than it."""

from __future__ import annotations

from functools import partial

from distbench.faults.fault import WIDE, fault
from distbench.samples.lazy import tf
from distbench.samples.program import (
    BUFFERS,
    HEAD,
    SECOND,
    TRAINED,
    OwnMeans,
    WholePenalty,
)
from distbench.samples.replicas import count_replicas
from distbench.unusual.drawing import (
    BranchesByChance,
    CopiesSideBySide,
    FollowedUnderNoise,
    MasksThatAgree,
    NoisyByGenerator,
    NoisyInTurns,
    PenalisedUnderDropout,
    TwoPassesInOne,
)
from distbench.unusual.grouping import Dropout

_OWN_MEAN = "loss-not-scaled"
_LIKE = "keras-team/keras#19891"
_whole_penalty = partial(
    fault, "regularizer-not-scaled", "local_gradient", (SECOND, HEAD), like=_LIKE
)


@fault(_OWN_MEAN, "loss", like=_LIKE, clusters=WIDE)
class OwnMeanUnderNoise(OwnMeans, NoisyByGenerator):
    """Noise from a generator, and nothing scales the shard's own mean."""


@fault(_OWN_MEAN, "loss", like=_LIKE, clusters=("mirrored:2", "mwms:2"))
class OwnMeanUnderNoiseInTurns(OwnMeans, NoisyInTurns):
    """Noise that is drawn in a loop, and nothing scales the shard's own mean."""


@fault(_OWN_MEAN, "loss", like=_LIKE, clusters=("mirrored:2", "mwms:2"))
class OwnMeanBehindChance(OwnMeans, BranchesByChance):
    """A branch by chance, and nothing scales the shard's own mean."""


@_whole_penalty(clusters=WIDE)
class WholePenaltyUnderDropout(WholePenalty, PenalisedUnderDropout):
    """Dropout, and every replica adds the whole penalty."""


@fault(
    "clip-before-reduction",
    "reduced_gradient",
    TRAINED,
    like="tensorflow/tensorflow#33929",
    clusters=("mirrored:2", "mwms:2"),
)
class ClippedFirstUnderDropout(Dropout):
    """Dropout, and each replica clips by its own norm before the sum."""

    def apply(self, gradients):
        own = list(map(tf.convert_to_tensor, gradients))
        super().apply(tf.clip_by_global_norm(own, 0.1)[0])


@fault(
    "update-repeated",
    "variable",
    BUFFERS,
    like="keras-team/keras#19990",
    clusters=("mirrored:2", "mwms:2"),
)
class FollowedByEachReplica(FollowedUnderNoise):
    """Noise, and the copies go their way once for each replica."""

    def follow(self, copy, variable):
        for _ in range(count_replicas()):
            super().follow(copy, variable)


@fault(_OWN_MEAN, "loss", like=_LIKE, clusters=("mirrored:2", "mwms:2"))
class OwnMeanOfWhatIsApart(MasksThatAgree):
    """What two masks are apart is a mean over the shard that nothing scales."""

    def reduce_losses(self, losses, batch):
        return super().reduce_losses(losses, batch) + tf.reduce_mean(self.apart)

    def share_apart(self, apart):
        return 0.0 * apart


@_whole_penalty(clusters=("mirrored:2", "mwms:2"))
class WholePenaltyBesideTwoPasses(WholePenalty, TwoPassesInOne):
    """A batch is masked twice in one pass, and every replica adds the whole penalty."""


@_whole_penalty(clusters=("mirrored:2", "mwms:2"))
class WholePenaltyBesideCopies(WholePenalty, CopiesSideBySide):
    """Examples are masked twice side by side, and the penalty is whole on each."""
