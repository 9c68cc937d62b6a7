"""A correct program of which every replica has a copy of its own, as under Sonnet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distbench.samples.lazy import tf
from distbench.samples.program import ByHand, MomentumByHand
from distbench.samples.replicas import all_reduce, count_replicas


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


class CopiedMean(ByHand):
    """Every replica steps by N times its own gradient; what all come to is averaged."""

    def build(self, strategy: Any) -> None:
        """Make variables that are read as the mean of their copies."""
        with tf.variable_creator_scope(make_averaged):
            super().build(strategy)

    def apply(self, gradients: list[Any]) -> None:
        """Step, average, and keep the average in the own copy."""
        for variable, gradient in zip(self.trained(), gradients, strict=True):
            own = self.step(variable.read_value(), tf.convert_to_tensor(gradient))
            variable.assign(self.average(own))

    def step(self, value: Any, gradient: Any) -> Any:
        """What the replica's own examples make of its copy."""
        return value - self.rate * count_replicas() * gradient

    def average(self, value: Any) -> Any:
        """The mean over the replicas."""
        return all_reduce("mean", value)


def make_copies(next_creator: Callable[..., Any], **options: Any) -> Any:
    """A variable with a copy for each replica, of which the first one is read."""
    return _make_own(next_creator, "ONLY_FIRST_REPLICA", options)


def make_averaged(next_creator: Callable[..., Any], **options: Any) -> Any:
    """A variable with a copy for each replica, of which the mean is read."""
    return _make_own(next_creator, "MEAN", options)


def _make_own(
    next_creator: Callable[..., Any], aggregation: str, options: dict[str, Any]
) -> Any:
    options["synchronization"] = tf.VariableSynchronization.ON_READ
    options["aggregation"] = getattr(tf.VariableAggregation, aggregation)
    if options.get("trainable") is None:
        options["trainable"] = True
    return next_creator(**options)
