"""Wrong losses of which a step makes state that is as wrong."""

from __future__ import annotations

from distbench.faults.fault import WIDE, fault
from distbench.samples.program import HEAD, SECOND, OwnMeans, WholePenalty
from distbench.unusual.of_losses import (
    BestLossKept,
    BestPenalisedLossKept,
    TwoLossesByHand,
)


@fault("loss-not-scaled", "loss", like="keras-team/keras#19891", clusters=WIDE)
class BestOfOwnMeans(OwnMeans, BestLossKept):
    """A mean over the own examples, of which the step keeps the lowest so far."""


@fault(
    "regularizer-not-scaled",
    "local_gradient",
    (SECOND, HEAD),
    like="keras-team/keras#19891",
    clusters=WIDE,
)
class BestWithFullPenalty(WholePenalty, BestPenalisedLossKept):
    """Each replica has all of the penalty, and the step keeps the lowest loss."""


@fault("loss-not-scaled", "loss", like="keras-team/keras#19891", clusters=WIDE)
class OwnMeansOfTwoLossesByHand(OwnMeans, TwoLossesByHand):
    """Two losses are own means, whose gradients nobody sees before two moments."""
