"""Mistakes in what a rule makes of its counter of steps, which is itself right."""

from __future__ import annotations

from distbench.faults.fault import fault
from distbench.samples.lazy import tf
from distbench.samples.optimizers import optimizer
from distbench.samples.replicas import count_replicas
from distbench.samples.switching import Corrected, Counting, Switching

_differs = fault(
    "hyperparameter-differs",
    "variable",
    ("table", "kernel", "bias"),
    like="keras-team/keras#19990",
    workload="embedding",
)


@_differs
@optimizer("Optimizer", "OwnRule")
class SwitchesAfterStepsOfAll(Switching):
    """A rule becomes another one early: each replica's steps count."""

    def count_steps(self):
        return super().count_steps() * count_replicas()


@_differs
@optimizer("Optimizer", "OwnRule")
class SwitchesBehindTheOthers(Switching):
    """A rule becomes another one late: a step of each other replica is waited for."""

    def count_steps(self):
        return super().count_steps() - (count_replicas() - 1)


@_differs
@optimizer("Optimizer", "OwnRule")
class SquaresCorrectedByStepsOfAll(Corrected):
    """A mean of squares is corrected as if N times as many steps had been taken."""

    def count_steps(self):
        return super().count_steps() * count_replicas()


@_differs
@optimizer("Optimizer", "OwnRule")
class FasterForAllReplicasLater(Counting):
    """From the seventh step on N times as far; that each step is taken is asserted."""

    def update_variable(self, var, slot, grad):
        del slot

        def move(times):
            var.assign_sub(times * self.rate * grad)
            return tf.constant(True)

        is_late = self.count_steps() > 5
        is_moved = tf.cond(is_late, lambda: move(count_replicas()), lambda: move(1))
        tf.debugging.Assert(is_moved, ["not moved"])
        return is_moved
