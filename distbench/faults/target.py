"""Mistakes in how, and when, a copy follows what trains."""

from __future__ import annotations

from distbench.faults.fault import fault
from distbench.samples.lazy import tf
from distbench.samples.replicas import all_reduce, count_replicas, find_replica
from distbench.unusual.target import (
    AveragesWhatItLeaves,
    FollowsEverySecondStep,
    FollowsInOwnCopies,
)


@fault("update-repeated", "variable", ("taken",), like="larq/larq#629")
class StepsOfAllReplicasCounted(FollowsEverySecondStep):
    """Steps are counted once for each replica, and a copy follows more often."""

    def count_steps(self):
        return count_replicas()


@fault("hyperparameter-differs", "variable", ("target",), like="keras-team/keras#19990")
class FollowsSeldomOfMany(FollowsEverySecondStep):
    """A copy follows after N times as many steps, as if N of them counted one each."""

    def find_period(self):
        return 2 * count_replicas()


@fault("update-repeated", "variable", ("average",), like="larq/larq#629")
class AverageFollowsForEachReplica(AveragesWhatItLeaves):
    """The average goes its part of the way once for each replica, after the update."""

    def move(self, copy, value):
        for _ in range(count_replicas()):
            super().move(copy, value)


@fault("scale-error", "variable", ("average",), like="keras-team/keras#18972")
class AverageOfSummedCopies(AveragesWhatItLeaves):
    """The replicas' copies of the head, which are equal, are added up on the way."""

    def read_head(self):
        return all_reduce("sum", super().read_head())


@fault(
    "replicas-diverged",
    "local_gradient",
    ("second/kernel", "bias", "head"),
    like="keras-team/keras#19990",
    replicas=(1,),
)
class FollowsOnFirstReplica(FollowsInOwnCopies):
    """Each replica has a copy for itself, and only that of replica 0 follows."""

    def count_followers(self):
        return tf.cast(find_replica() == 0, self.dtype)
