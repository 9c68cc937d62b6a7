"""An optimizer that keeps an average of the weights, made when needed."""

from __future__ import annotations

from typing import Any

from distbench.samples.lazy import tf
from distbench.samples.optimizers import OwnRule


class Averaged(OwnRule):
    """The mean of the weights, from some step on and every few steps (Polyak, SWA).

    average <- average + (var - average) / (1 + taken), of so many that were taken
    """

    start = 0
    period = 1

    def create_slots(self, variable: Any) -> None:
        """Make the slots of a variable."""
        super().create_slots(variable)
        self.add_slot(variable, "average")  # type: ignore[attr-defined]  # of the base

    def find_start(self) -> int:
        """The first step whose weights are taken."""
        return self.start

    def count_taken(self) -> Any:
        """How many weights are in the average."""
        passed = self.iterations - self.find_start()  # type: ignore[attr-defined]  # of the base
        return tf.cast(tf.maximum(passed, 0) // self.period, tf.float32)

    def find_share(self) -> Any:
        """What part of its way to the weights the average goes, where it goes."""
        return 1 / (1 + self.count_taken())

    def update_variable(self, var: Any, slot: Any, grad: Any) -> Any:
        """Change one copy of a variable, and of the average."""
        super().update_variable(var, slot, grad)
        average = self.get_slot(var, "average")  # type: ignore[attr-defined]  # of the base
        passed = self.iterations - self.find_start()  # type: ignore[attr-defined]  # of the base
        is_due = (passed >= 0) & (passed % self.period == 0)
        share = tf.where(is_due, self.find_share(), 0.0)
        return average.assign_add(share * (var - average))


class WarmlyAveraged(Averaged):
    """An average that forgets, at first more quickly: min(0.99, (1 + t) / (10 + t))."""

    def find_share(self) -> Any:
        """What part of its way to the weights the average goes."""
        taken = self.count_taken()
        return 1 - tf.minimum(0.99, (1 + taken) / (10 + taken))
