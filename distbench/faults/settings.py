"""Mistakes in what optimizers tell of their settings, wherever they keep it."""

from __future__ import annotations

from distbench.faults.fault import fault
from distbench.samples.lazy import legacy, schedules, tf
from distbench.samples.optimizers import OwnRule, optimizer
from distbench.samples.program import TRAINED, Program
from distbench.samples.replicas import count_replicas


@fault(
    "hyperparameter-differs",
    "slot",
    tuple(f"SGD/{path}/momentum" for path in TRAINED),
    like="sql-machine-learning/elasticdl#89",
)
class StaircaseTimesReplicas(Program):
    """The rates of a schedule, which are a list, are multiplied by N."""

    def make_optimizer(self):
        rates = [rate * count_replicas() for rate in (0.05, 0.02)]
        return legacy.SGD(schedules.PiecewiseConstantDecay([1], rates), momentum=0.9)


@fault(
    "hyperparameter-differs",
    "variable",
    ("table", "kernel", "bias"),
    like="sql-machine-learning/elasticdl#89",
    workload="embedding",
)
@optimizer("Optimizer", "OwnRule")
class LimitOfStepsTimesReplicas(OwnRule):
    """Steps are limited to N times as much, which is told by another name than kept."""

    def __init__(self, name):
        super().__init__(name)  # type: ignore[call-arg]  # of the base
        self._most = 0.02 * count_replicas()

    def update_variable(self, var, slot, grad):
        del grad
        return var.assign_sub(tf.clip_by_norm(self.rate * slot, self._most))

    def get_config(self):
        return {**super().get_config(), "limit": self._most}


@fault(
    "update-repeated",
    "variable",
    ("table", "kernel", "bias"),
    like="sql-machine-learning/elasticdl#89",
    workload="embedding",
)
@optimizer("Optimizer", "OwnRule")
class StepTakenByEachOfWorldSize(OwnRule):
    """The variable moves once for each replica; how many there are is a setting."""

    def update_variable(self, var, slot, grad):
        for _ in range(count_replicas()):
            done = super().update_variable(var, slot, grad)
        return done

    def get_config(self):
        return {**super().get_config(), "world_size": count_replicas()}
