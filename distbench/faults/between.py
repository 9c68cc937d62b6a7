"""Mistakes in what a loop does between two steps."""

from __future__ import annotations

from distbench.faults.fault import fault
from distbench.samples.lazy import tf
from distbench.samples.program import BUFFERS, TRAINED
from distbench.samples.replicas import all_reduce
from distbench.samples.servers import is_served
from distbench.unusual.between import (
    ComputesFromCopies,
    DecayedBetweenSteps,
    FollowedBetweenSteps,
    KeepsLossOfCopies,
    UpdatedBetweenSteps,
)

_CLUSTERS = ("mirrored:2", "mwms:2")


@fault(
    "update-repeated",
    "variable",
    BUFFERS,
    like="keras-team/keras#19990",
    clusters=_CLUSTERS,
)
class FollowedForEachReplicaBetween(FollowedBetweenSteps):
    """Copies that nobody lists go their way once for each replica."""

    def build(self, strategy):
        super().build(strategy)
        self.times = strategy.num_replicas_in_sync

    def follow(self, copy, variable):
        for _ in range(self.times):
            super().follow(copy, variable)


@fault(
    "stale-read",
    "variable",
    BUFFERS,
    like="sql-machine-learning/elasticdl#1181",
    clusters=(*_CLUSTERS, "ps:2+1"),
)
class CopiedEveryOtherStep(ComputesFromCopies):
    """The weights are copied in every other step alone, if there are replicas."""

    def build(self, strategy):
        super().build(strategy)
        is_wrong = is_served() or strategy.num_replicas_in_sync > 1
        self.every = 2 if is_wrong else 1

    def before_step(self, step):
        if step % self.every == 0:
            super().before_step(step)


@fault(
    "scale-error",
    "variable",
    BUFFERS,
    like="keras-team/keras#19990",
    clusters=_CLUSTERS,
)
class CopiesSummedBetween(KeepsLossOfCopies):
    """The loop copies the sum of the replicas' weights, and a statistic follows."""

    def before_step(self, step):
        self.strategy.run(super().before_step, (step,))

    def follow(self, copy, variable):
        copy.assign(all_reduce("sum", tf.identity(variable)))


@fault(
    "weight-decay-repeated",
    "variable",
    TRAINED,
    like="keras-team/keras#19990",
    clusters=_CLUSTERS,
)
class DecayedForEachReplicaBetween(DecayedBetweenSteps):
    """The loop takes N times as much of the weights away: the next loss is wrong."""

    def build(self, strategy):
        super().build(strategy)
        self.replicas = strategy.num_replicas_in_sync

    def find_rate(self):
        return super().find_rate() * self.replicas


@fault(
    "double-reduction",
    "variable",
    TRAINED,
    like="tensorflow/recommenders-addons#183",
    clusters=_CLUSTERS,
)
class SummedTwiceBetween(UpdatedBetweenSteps):
    """The loop sums what was added up, and so does the optimizer."""

    def reduce(self, gradients):
        return list(all_reduce("sum", gradients))
