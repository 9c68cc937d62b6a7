"""Averages of the weights, as they are meant."""

from __future__ import annotations

from distbench.samples.averaged import Averaged, WarmlyAveraged
from distbench.samples.optimizers import optimizer
from distbench.unusual.program import unusual


@unusual(workload="embedding")
@optimizer("Optimizer", "OwnRule")
class MeanOfAllWeights(Averaged):
    """An optimizer keeps the mean of the weights of all steps."""


@unusual(workload="embedding")
@optimizer("Optimizer", "OwnRule")
class AverageThatStartsQuickly(WarmlyAveraged):
    """An average of the weights forgets more quickly at first."""


@unusual(workload="embedding")
@optimizer("Optimizer", "OwnRule")
class MeanOfLateWeights(Averaged):
    """A mean of the weights begins after all steps that a check begins with."""

    start = 6


@unusual(workload="embedding")
@optimizer("Optimizer", "OwnRule")
class MeanFromTheLastStepOn(Averaged):
    """A mean of the weights begins in the last step that a check begins with."""

    start = 2


@unusual(workload="embedding")
@optimizer("Optimizer", "OwnRule")
class MeanOfCycles(Averaged):
    """A mean of the weights takes those of every other step, from the fourth on."""

    start = 3
    period = 2
