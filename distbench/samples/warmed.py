"""A program whose rule is another one from some step on."""

from __future__ import annotations

from typing import Any

from distbench.samples.lazy import tf
from distbench.samples.program import OwnReduction

WARM = 4
"""The first step of the other rule: a check begins with fewer."""


class Warmed(OwnReduction):
    """Clips the global norm of the sum once some steps are taken."""

    def make_optimizer(self) -> Any:
        """The optimizer, whose counter of steps is made when it is asked for."""
        optimizer = super().make_optimizer()
        optimizer.iterations  # noqa: B018
        return optimizer

    def find_limit(self) -> Any:
        """The largest norm that a step may have; the first ones may have any."""
        return tf.where(self._optimizer.iterations < WARM, 1e6, 0.05)

    def reduce(self, gradients: list[Any]) -> list[Any]:
        """Sum, then clip."""
        return self.clip(super().reduce(gradients))

    def clip(self, gradients: list[Any]) -> list[Any]:
        """The gradients, with no larger a norm than the step may have."""
        return list(tf.clip_by_global_norm(gradients, self.find_limit())[0])
