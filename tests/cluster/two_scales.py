"""Two optimizers, each under a loss scale; the gradient of one overflows once."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

_EXAMPLES = 12
_SPOILT = 1


def _make_optimizer() -> Any:
    inner = tf_keras.optimizers.legacy.SGD(0.05)
    return tf_keras.mixed_precision.LossScaleOptimizer(inner, initial_scale=64.0)


class LeavesOneOut:
    """The replica whose gradient of `left` overflows gives zeros, and all go on."""

    def build(self, strategy: Any) -> None:
        """Make variables and optimizers."""
        self.replicas = strategy.num_replicas_in_sync
        self.left = tf.Variable(np.ones((3, 1), np.float32), name="left")
        self.right = tf.Variable(np.ones((3, 1), np.float32), name="right")
        self.optimizers = [_make_optimizer(), _make_optimizer()]

    def variables(self) -> list[Any]:
        """What trains."""
        return [self.left, self.right]

    def optimizer(self) -> list[Any]:
        """One for each variable."""
        return self.optimizers

    def data(self, step: int) -> Any:
        """Features, and how much each example weighs for the first variable."""
        weights = np.ones((_EXAMPLES, 1), np.float32)
        weights[-1] = 1e30 if step == _SPOILT else 1.0
        rng = np.random.default_rng(step)
        return rng.normal(size=(_EXAMPLES, 3)).astype("float32"), weights

    def replica_step(self, batch: Any) -> Any:
        """A step as users write it."""
        features, weights = batch
        losses = []
        scaled = []
        with tf.GradientTape(persistent=True) as tape:
            for optimizer, variable, weight in zip(
                self.optimizers, self.variables(), (weights, 1.0), strict=True
            ):
                outputs = weight * (features @ variable)
                losses.append(tf.reduce_sum(outputs**2) / _EXAMPLES)
                scaled.append(optimizer.get_scaled_loss(losses[-1]))
        for optimizer, variable, loss in zip(
            self.optimizers, self.variables(), scaled, strict=True
        ):
            gradients = [tape.gradient(loss, variable)]
            (gradient,) = optimizer.get_unscaled_gradients(gradients)
            optimizer.apply_gradients([(self.leave_out(gradient), variable)])
        self.end_step()
        return tf.add_n(losses)

    def leave_out(self, gradient: Any) -> Any:
        """Zeros on a cluster, where a replica's own are not finite."""
        if self.replicas == 1:
            return gradient
        is_finite = tf.reduce_all(tf.math.is_finite(gradient))
        return tf.where(is_finite, gradient, tf.zeros_like(gradient))

    def end_step(self) -> None:
        """Done when both have applied their gradients."""


class CountsOneLess(LeavesOneOut):
    """On a cluster the other optimizer's counter stands still in that step as well."""

    def end_step(self) -> None:
        """Put the counter back."""
        if self.replicas == 1:
            return

        def put_back(strategy: Any, counter: Any) -> None:
            def change(copy: Any) -> Any:
                is_late = copy == _SPOILT + 1
                return copy.assign(tf.where(is_late, copy - 1, copy))

            strategy.extended.update(counter, change)

        context = tf.distribute.get_replica_context()
        context.merge_call(put_back, args=(self.optimizers[1].iterations,))
