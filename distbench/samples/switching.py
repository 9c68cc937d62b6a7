"""Optimizers that are led by their counter of steps, made when needed."""

from __future__ import annotations

from typing import Any

from distbench.samples.lazy import tf
from distbench.samples.optimizers import OwnRule


class Counting(OwnRule):
    """A rule that asks how many steps there were."""

    def count_steps(self) -> Any:
        """How many steps were taken before this one."""
        return self.iterations  # type: ignore[attr-defined]  # of the base


class Switching(Counting):
    """Plain descent, which becomes one with Nesterov's momentum in the sixth step."""

    first = 5

    def update_variable(self, var: Any, slot: Any, grad: Any) -> Any:
        """Change one copy of a variable."""
        ahead = self.beta * slot + grad
        is_early = self.count_steps() < self.first
        return var.assign_sub(self.rate * tf.where(is_early, grad, ahead))


class Corrected(Counting):
    """A mean of squares is corrected for its first steps, as in Adam."""

    def update_slot(self, slot: Any, grad: Any, var: Any) -> None:
        """Change one copy of a slot."""
        del var
        slot.assign(self.beta * slot + (1 - self.beta) * grad**2)

    def update_variable(self, var: Any, slot: Any, grad: Any) -> Any:
        """Change one copy of a variable."""
        taken = tf.cast(self.count_steps() + 1, grad.dtype)
        size = tf.sqrt(slot / (1 - self.beta**taken))
        return var.assign_sub(0.01 * grad / (size + 0.01))
