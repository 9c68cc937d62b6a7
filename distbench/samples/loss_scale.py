"""Correct train programs in float32 under a loss scale, with data that overflows."""

from __future__ import annotations

from typing import Any

from distbench.samples.lazy import keras, keras3, legacy, tf
from distbench.samples.program import Program
from distbench.samples.replicas import all_reduce, count_replicas

OVERFLOWING = 1e37
"""A target whose gradient float32 cannot hold once it is scaled."""


def spoil(batch: Any, step: int, examples: slice) -> Any:
    """Have examples overflow in the second step."""
    words, features, targets = batch
    if step == 1:
        targets[examples] = OVERFLOWING
    return words, features, targets


def find_finite(gradients: list[Any]) -> Any:
    """Whether all of a replica's gradients are finite."""
    dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
    return tf.reduce_all([tf.reduce_all(tf.math.is_finite(g)) for g in dense])


def make_scale(value: float, aggregation: str) -> Any:
    """A loss scale that a program keeps itself, to be read as an aggregation has it."""
    return tf.Variable(
        value,
        trainable=False,
        name="scale",
        aggregation=getattr(tf.VariableAggregation, aggregation),
    )


class Scaled(Program):
    """The loss is scaled, and the gradients are divided by the scale again.

    Attributes:
        scale: The loss scale to start with; a power of two.
        dynamic: Whether it changes.
        spoilt: Examples of the second step that overflow.
    """

    scale = 1024.0
    dynamic = True
    spoilt = slice(0)

    def make_optimizer(self) -> Any:
        """The inner optimizer under the scale."""
        return keras.mixed_precision.LossScaleOptimizer(
            self.make_inner(), dynamic=self.dynamic, initial_scale=self.scale
        )

    def make_inner(self) -> Any:
        """The optimizer under the scale."""
        return legacy.SGD(0.05, momentum=0.9)

    def data(self, step: int) -> Any:
        """Word numbers, features and targets of the global batch."""
        return spoil(super().data(step), step, self.spoilt)

    def replica_step(self, batch: Any) -> Any:
        """One step of one replica; returns its loss, unscaled."""
        with tf.GradientTape() as tape:
            loss = self.reduce_losses(self.compute_losses(batch), batch)
            scaled = self.scale_loss(loss)
        self.apply(self.unscale(tape.gradient(scaled, self.trained())))
        return loss

    def scale_loss(self, loss: Any) -> Any:
        """The loss times the scale."""
        return self._optimizer.get_scaled_loss(loss)

    def unscale(self, gradients: list[Any]) -> list[Any]:
        """Gradients over the scale."""
        return list(self._optimizer.get_unscaled_gradients(gradients))


class Keras3Scaled(Scaled):
    """The optimizer divides the gradients itself."""

    def make_optimizer(self) -> Any:
        """The inner optimizer under the scale."""
        optimizer = keras3.LossScaleOptimizer(
            self.make_inner(), initial_scale=self.scale
        )
        optimizer.build(self.trained())
        return optimizer

    def make_inner(self) -> Any:
        """The optimizer under the scale."""
        return keras3.SGD(0.05, momentum=0.9)

    def scale_loss(self, loss: Any) -> Any:
        """The loss times the scale."""
        return self._optimizer.scale_loss(loss)

    def unscale(self, gradients: list[Any]) -> list[Any]:
        """Gradients as the optimizer takes them."""
        return gradients


class ScaledByHand(Scaled):
    """The scale is a variable of the program's, halved where a gradient overflows."""

    def make_optimizer(self) -> Any:
        """What steps along the gradients; zeros leave all as it is."""
        return legacy.SGD(0.05)

    def build(self, strategy: Any) -> None:
        """Make the variables, the scale as one that all replicas have alike."""
        super().build(strategy)
        self.now = make_scale(self.scale, "ONLY_FIRST_REPLICA")

    def variables(self) -> list[Any]:
        """The trained ones, and the scale."""
        return [*super().variables(), self.now]

    def scale_loss(self, loss: Any) -> Any:
        """The loss times the scale."""
        return loss * self.now

    def unscale(self, gradients: list[Any]) -> list[Any]:
        """Gradients over the scale, or zeros where they are left out."""
        finite = self.ask(find_finite(gradients))
        dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
        found = [tf.where(finite, g / self.now, tf.zeros_like(g)) for g in dense]
        self.now.assign(tf.where(finite, 2.0 * self.now, self.now / 2.0))
        return found

    def ask(self, finite: Any) -> Any:
        """Whether no replica's gradients overflow."""
        return all_reduce("sum", tf.cast(finite, tf.int32)) == count_replicas()
