"""Mistakes in averages of the weights that an optimizer keeps."""

from __future__ import annotations

from distbench.faults.fault import fault
from distbench.faults.slots import name_slots
from distbench.samples.averaged import Averaged, WarmlyAveraged
from distbench.samples.optimizers import optimizer
from distbench.samples.replicas import count_replicas

_differs = fault(
    "hyperparameter-differs",
    "slot",
    name_slots("average"),
    like="keras-team/keras#19990",
    workload="embedding",
)
"""All leave the rule alone, and go another part of the way to the weights."""


class _CountsEachReplica(Averaged):
    def count_taken(self):
        return super().count_taken() * count_replicas()


@_differs
@optimizer("Optimizer", "OwnRule")
class MeanOverStepsOfAll(_CountsEachReplica):
    """The mean of the weights counts N steps for each one."""


@_differs
@optimizer("Optimizer", "OwnRule")
class QuickStartOverStepsOfAll(_CountsEachReplica, WarmlyAveraged):
    """An average that forgets more quickly at first counts N steps for each one."""


@_differs
@optimizer("Optimizer", "OwnRule")
class LateMeanOverStepsOfAll(_CountsEachReplica):
    """A mean that begins late counts N steps for each: wrong from its second one on."""

    start = 6


@_differs
@optimizer("Optimizer", "OwnRule")
class MeanFromTheLastStepOverStepsOfAll(_CountsEachReplica):
    """The same of one that begins in the last step that a check begins with."""

    start = 2


@_differs
@optimizer("Optimizer", "OwnRule")
class CyclesOverStepsOfAll(_CountsEachReplica):
    """A mean of the weights of every other step counts N of them for each one."""

    start = 3
    period = 2


@_differs
@optimizer("Optimizer", "OwnRule")
class MeanStartsEarly(Averaged):
    """A mean of the weights begins after an N-th of the steps."""

    start = 6

    def find_start(self):
        return self.start // count_replicas()
