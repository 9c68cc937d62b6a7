"""Mistakes of users who update by hand and keep their own momentum."""

from __future__ import annotations

from distbench.faults.fault import WIDE, fault
from distbench.samples.lazy import tf
from distbench.samples.program import TRAINED, ByHand, MomentumByHand
from distbench.samples.replicas import all_reduce, count_replicas, find_replica

_BUFFERS = tuple(f"moved{place}" for place in range(len(TRAINED)))


@fault("missing-reduction", "variable", TRAINED, like="keras-team/keras#19467")
class NobodySumsForTheMomentum(MomentumByHand):
    """Every replica goes on with its own gradient."""

    def reduce(self, gradient):
        return gradient


@fault(
    "mean-instead-of-sum",
    "variable",
    TRAINED,
    like="keras-team/keras#20541",
    clusters=WIDE,
)
class MeanByHand(ByHand):
    """The user averages gradients that are shares of the whole batch's."""

    def reduce(self, gradient):
        return all_reduce("mean", gradient)


@fault(
    "mean-instead-of-sum",
    "variable",
    TRAINED,
    like="keras-team/keras#20541",
    clusters=WIDE,
)
class MomentumOfTheMean(MomentumByHand):
    """The same, and the user's own momentum takes the mean."""

    def reduce(self, gradient):
        return all_reduce("mean", gradient)


@fault("slot-repeated", "slot", _BUFFERS, like="tensorflow/addons#2683")
class MomentumForEachReplica(MomentumByHand):
    """The buffer decays and takes a share once for each replica."""

    def move(self, copy, gradient):
        count = count_replicas()
        for _ in range(count):
            copy.assign(self.beta * copy + gradient / count)


@fault(
    "replica-dropped",
    "variable",
    TRAINED,
    like="tensorflow/addons#2683",
    replicas=(1,),
)
class MomentumOfTheFirstReplica(MomentumByHand):
    """The buffers take the gradient of replica 0 and not the sum."""

    def reduce(self, gradient):
        mine = 1.0 if count_replicas() == 1 or find_replica() == 0 else 0.0
        return super().reduce(tf.convert_to_tensor(gradient) * mine)
