"""Programs that meet a corrupt gradient in different ways."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

_EXAMPLES = 8
_RATE = 0.125


def make_sgd() -> Any:
    """SGD, which takes any gradient as it is."""
    return tf_keras.optimizers.legacy.SGD(_RATE, momentum=0.5)


def make_loss_scale() -> Any:
    """A loss scale leaves a step out whose gradients are not finite."""
    inner = tf_keras.optimizers.SGD(_RATE, momentum=0.5)
    return tf_keras.mixed_precision.LossScaleOptimizer(inner, dynamic=True)


class Trusting:
    """Sums by hand, and takes the sum as it is."""

    def build(self, strategy: Any) -> None:
        """Make the variable."""
        del strategy
        self._kernel = tf.Variable(np.ones((3, 2), np.float32), name="kernel")

    def variables(self) -> list[Any]:
        """What trains."""
        return [self._kernel]

    def optimizer(self) -> None:
        """It updates by hand."""

    def data(self, step: int) -> Any:
        """The global batch."""
        return np.random.default_rng(step).normal(size=(_EXAMPLES, 3)).astype("float32")

    def replica_step(self, batch: Any) -> Any:
        """A step as users write it."""
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((batch @ self._kernel) ** 2) / _EXAMPLES
        (gradient,) = tape.gradient(loss, [self._kernel])
        gradient = self.check(gradient)
        total = tf.distribute.get_replica_context().all_reduce("sum", gradient)
        self._kernel.assign_sub(_RATE * self.keep(total))
        return loss

    def check(self, gradient: Any) -> Any:
        """What is made of the replica's own gradient."""
        return gradient

    def keep(self, total: Any) -> Any:
        """What is made of the sum."""
        return total


class Guarded(Trusting):
    """All replicas leave a step out whose sum is not finite."""

    def keep(self, total: Any) -> Any:
        """Zeros in the place of what is not finite."""
        is_finite = tf.reduce_all(tf.math.is_finite(total))
        return tf.where(is_finite, total, tf.zeros_like(total))


class GuardedAlone(Trusting):
    """A replica leaves its own gradient out, and the others go on without it."""

    def check(self, gradient: Any) -> Any:
        """Zeros in the place of what is not finite."""
        is_finite = tf.reduce_all(tf.math.is_finite(gradient))
        return tf.where(is_finite, gradient, tf.zeros_like(gradient))


class Raising(Trusting):
    """Raises where a gradient is not finite."""

    def check(self, gradient: Any) -> Any:
        """The gradient, if it is finite."""
        return tf.debugging.check_numerics(gradient, "a bad gradient")
