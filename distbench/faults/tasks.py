"""Gradients of two losses that are made one by each replica before they are summed."""

from __future__ import annotations

from distbench.faults.fault import WIDE, fault
from distbench.samples.lazy import tf
from distbench.samples.program import TRAINED, Program
from distbench.unusual.tasks import (
    StepsOffWhatItRemembers,
    TasksWeighed,
    TasksWithoutWhatIsAlongOthers,
)

_NONLINEAR = "nonlinear-before-reduction"
_PHASE = "reduced_gradient"


@fault(_NONLINEAR, _PHASE, TRAINED, like="horovod/horovod#3786", clusters=WIDE)
class TasksProjectedBeforeSum(TasksWeighed):
    """Each replica projects its own gradients of one task on those of the other."""

    combine = TasksWithoutWhatIsAlongOthers.combine


@fault(_NONLINEAR, _PHASE, TRAINED, like="horovod/horovod#3786", clusters=WIDE)
class StepsOffBeforeSum(StepsOffWhatItRemembers):
    """Each replica projects its own gradient off that of what all remember."""

    def send(self, gradients):
        return gradients

    apply = Program.apply


@fault(_NONLINEAR, _PHASE, TRAINED, like="deepspeedai/DeepSpeed#490")
class TasksOfUnitNorm(TasksWeighed):
    """Each replica divides its own gradients of each task by their norm."""

    def combine(self, first, second):
        sizes = tf.linalg.global_norm(first), tf.linalg.global_norm(second)
        pairs = zip(first, second, strict=True)
        return [a / sizes[0] + b / sizes[1] for a, b in pairs]
