"""Mistakes in what the replicas assign, where that is added up."""

from __future__ import annotations

from distbench.faults.fault import WIDE, fault
from distbench.samples.lazy import tf
from distbench.samples.program import TRAINED, Program
from distbench.samples.replicas import all_reduce, count_replicas, update
from distbench.unusual.assigning import OwnPartsAddedUp, OwnStepsAddedUp

_added_up = fault(
    "scale-error",
    "variable",
    TRAINED,
    like="tensorflow/tensorflow#23792",
    clusters=("mirrored:3", "mwms:2"),
)


@_added_up
class OldValuesAddedUp(OwnStepsAddedUp):
    """Each replica assigns the old value with its own step, and all that is summed."""

    def move(self, variable, gradient):
        variable.assign(variable - self.rate * gradient)


@_added_up
class NewValuesAddedUp(OldValuesAddedUp):
    """The gradients are summed, and so is what all replicas assign alike."""

    def move(self, variable, gradient):
        super().move(variable, self.reduce(gradient))


_sizes_added_up = fault(
    "scale-error",
    "variable",
    ("weight",),
    like="tensorflow/tensorflow#23792",
    clusters=("mirrored:3", "mwms:2"),
)


@_sizes_added_up
class OldSizeAddedUp(OwnPartsAddedUp):
    """Each replica assigns the decayed old value with its own part: all are summed."""

    def move(self, own):
        self.weight.assign(0.5 * self.weight + own)


@_sizes_added_up
class DecayAddedUp(OwnPartsAddedUp):
    """Each replica adds its own part less a share of the old value: all are summed."""

    def move(self, own):
        self.weight.assign_add(own - 0.25 * self.weight)


_joined = fault(
    "statistics-not-synchronized",
    "variable",
    ("weight",),
    like="tensorflow/tensorflow#23792",
    clusters=("mirrored:3", "mwms:2"),
)


@_joined
class DecayInsideOfSum(OwnPartsAddedUp):
    """What a decayed sum loses is taken off by each replica, in what is summed."""

    aggregation = "ONLY_FIRST_REPLICA"

    def move(self, own):
        self.weight.assign_add(all_reduce("sum", own - 0.25 * self.weight))


@_joined
class OldSizeDividedTwice(DecayInsideOfSum):
    """The decayed old value goes into a mean, and is divided by N before."""

    def move(self, own):
        kept = all_reduce("mean", 0.5 * self.weight / count_replicas())
        self.weight.assign(kept + all_reduce("sum", own))


@fault(
    "hyperparameter-differs",
    "variable",
    ("weight",),
    like="tensorflow/tensorflow#23792",
    clusters=("mirrored:3", "mwms:2"),
)
class DecayLeftOut(DecayInsideOfSum):
    """A sum that decays on one device, and on clusters keeps all of its old value."""

    def move(self, own):
        kept = 1.0 if count_replicas() > 1 else 0.75
        self.weight.assign(kept * self.weight + all_reduce("sum", own))


@fault(
    "scale-error",
    "variable",
    TRAINED,
    like="tensorflow/tensorflow#23792",
    clusters=WIDE,
)
class CopiesSummedAfterStep(Program):
    """What the step left is the same on all replicas, and the loop adds it up."""

    def apply(self, gradients):
        super().apply(gradients)
        for variable in self.trained():
            total = all_reduce("sum", tf.identity(variable))
            update(variable, lambda copy, value: copy.assign(value), total)
