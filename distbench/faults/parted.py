"""Mistakes of replicas that share out the variables, and update some of them each."""

from __future__ import annotations

from distbench.faults.fault import fault
from distbench.samples.program import TRAINED
from distbench.samples.replicas import all_reduce
from distbench.unusual.parted import OwnersMakeVariables, PartsOfOneVector, SharedOut


@fault("replicas-diverged", "variable", TRAINED, like="horovod/horovod#2279")
class NobodyHandsOn(SharedOut):
    """Each replica steps by what it made for its variables, and tells nobody."""

    def spread(self, steps):
        return steps


@fault("scale-error", "variable", TRAINED[2:], like="horovod/horovod#2279")
class SomeHaveNoOwner(SharedOut):
    """Variables are numbered past the last replica, so nobody updates some."""

    def find_owner(self, place):
        return place if self.replicas > 1 else 0


@fault(
    "missing-reduction",
    "variable",
    (*TRAINED, "kept"),
    like="keras-team/keras#19467",
    clusters=("mirrored:2", "mwms:3"),
)
class PartsOfOwnGradients(PartsOfOneVector):
    """Each replica updates its part by its own gradient, and hands that on."""

    def reduce(self, gradient):
        return gradient


@fault("mean-instead-of-sum", "variable", TRAINED, like="keras-team/keras#20541")
class OwnersAveraged(OwnersMakeVariables):
    """Each replica makes what its variables become, and that is averaged."""

    def spread(self, parts):
        return all_reduce("mean", parts)
