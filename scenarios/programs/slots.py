"""Slots of a legacy optimizer by their names, and all its weights at once."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tf_keras
from regression import Regression


class Restarting(Regression):
    """Adam that forgets what it has gathered, before the second step.

    The numbers of `get_weights` are the counter, then the slots.
    """

    def make_optimizer(self) -> Any:
        return tf_keras.optimizers.legacy.Adam(0.05)

    def before_step(self, step: int) -> None:
        if step == 1:
            self.restart()

    def restart(self) -> None:
        counter, *slots = self._optimizer.get_weights()
        self._optimizer.set_weights([counter, *(0.5 * slot for slot in slots)])


class RestartingByName(Restarting):
    """The same slot by slot."""

    def restart(self) -> None:
        assert self._optimizer.get_slot_names() == ["m", "v"]
        for name in self._optimizer.get_slot_names():
            for variable in self.variables():
                slot = self._optimizer.get_slot(variable, name)
                slot.assign(0.5 * slot)


class ChiefRestarts(Restarting):
    """Only the first worker restores the weights."""

    def restart(self) -> None:
        if is_chief():
            super().restart()


class FirstCopyRestarts(Restarting):
    """Only the first copy of each slot is set."""

    def restart(self) -> None:
        for name in self._optimizer.get_slot_names():
            for variable in self.variables():
                slot = self._optimizer.get_slot(variable, name)
                first = getattr(slot, "values", [slot])[0]
                first.assign(0.5 * first)


def is_chief() -> bool:
    resolver = tf.distribute.get_strategy().cluster_resolver
    return resolver is None or resolver.task_id == 0
