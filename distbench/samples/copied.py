"""A correct program of which every replica has a copy of its own, as under Sonnet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distbench.samples.lazy import tf
from distbench.samples.program import MomentumByHand


class Copied(MomentumByHand):
    """Every replica updates its own copies, all by the same sum; the first is read."""

    def build(self, strategy: Any) -> None:
        """Make variables that no strategy keeps alike."""
        with tf.variable_creator_scope(make_copies):
            super().build(strategy)

    def apply(self, gradients: list[Any]) -> None:
        """Sum, then change the own buffer and the own copy."""
        for place, gradient in enumerate(gradients):
            buffer = self.buffers[place]
            self.move(buffer, self.reduce(tf.convert_to_tensor(gradient)))
            self.descend(self.trained()[place], tf.identity(buffer))


class CopiedUnseen(Copied):
    """Own copies of all variables, moved by gradients that no tap sees.

    A `tf.function` within the step gives them.
    """

    def replica_step(self, batch: Any) -> Any:
        """One step of one replica; returns its loss."""
        loss, gradients = tf.function(self.differentiate)(batch)
        self.apply(gradients)
        return loss

    def differentiate(self, batch: Any) -> tuple[Any, list[Any]]:
        """The replica's loss and its gradients, dense."""
        with tf.GradientTape() as tape:
            loss = self.reduce_losses(self.compute_losses(batch), batch)
        found = tape.gradient(loss, self.trained())
        return loss, [tf.convert_to_tensor(gradient) for gradient in found]


def make_copies(next_creator: Callable[..., Any], **options: Any) -> Any:
    """A variable with a copy for each replica, of which the first one is read."""
    options["synchronization"] = tf.VariableSynchronization.ON_READ
    options["aggregation"] = tf.VariableAggregation.ONLY_FIRST_REPLICA
    if options.get("trainable") is None:
        options["trainable"] = True
    return next_creator(**options)
