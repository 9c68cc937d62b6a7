"""Mistakes in the part of a step that is made of momentum."""

from __future__ import annotations

from functools import partial

from distbench.faults.fault import fault
from distbench.samples.lazy import tf
from distbench.samples.optimizers import AlongNewMomentum, OwnRule, optimizer
from distbench.samples.replicas import count_replicas

_repeated = partial(
    fault,
    "momentum-repeated",
    "variable",
    ("table", "kernel", "bias"),
    workload="embedding",
)


class Remembering(OwnRule):
    """A rule that looks at its slot before and after its change."""

    def _resource_apply_dense(self, grad, var, apply_state=None):
        slot = self.get_slot(var, "m")
        before = tf.identity(slot)
        self.update_slot(slot, grad, var)
        return self.step(var, before, slot, grad)


@_repeated(like="keras-team/keras#20541")
@optimizer("Optimizer", "OwnRule")
class MomentumAddedOncePerReplica(Remembering):
    """The old momentum is added once for each replica, the gradient once."""

    def step(self, var, before, slot, grad):
        times = count_replicas()
        return var.assign_sub(self.rate * (times * self.beta * before + grad))


@_repeated(like="keras-team/keras#20541")
@optimizer("Optimizer", "OwnRule")
class NewMomentumAddedOncePerReplica(AlongNewMomentum):
    """The variable moves along its new momentum once for each replica."""

    def move_along(self, var, slot):
        for _ in range(count_replicas()):
            super().move_along(var, slot)


@_repeated(like="tensorflow/addons#2351")
@optimizer("Optimizer", "OwnRule")
class LooksAheadTwice(Remembering):
    """On a cluster the step looks ahead along a momentum that it holds already."""

    def step(self, var, before, slot, grad):
        ahead = self.beta**2 if count_replicas() > 1 else 0.0
        return var.assign_sub(self.rate * (slot + ahead * before))
