"""What goes wrong in optimizers from PyPI, with nothing but TensorFlow installed.

Loaded by the tasks from this file; nothing here knows of distbench.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf
import tf_keras


def make_adam_inside_tensorflow():
    """The base of keras-adamw: finds no slot on the second replica of a process."""
    from tensorflow.python.keras.optimizer_v2 import adam

    return adam.Adam(0.01)


class ClippingAdam(tf_keras.optimizers.legacy.Adam):
    """Clips in `apply_gradients`, as AdamWeightDecay of tf-models-official does."""

    def __init__(self, learning_rate, *, clip_norm, **options):
        super().__init__(learning_rate, **options)
        self.clip_norm = clip_norm

    def apply_gradients(
        self, grads_and_vars, name=None, experimental_aggregate_gradients=True
    ):
        gradients, variables = zip(*grads_and_vars, strict=True)
        if experimental_aggregate_gradients and self.clip_norm:
            gradients, _ = tf.clip_by_global_norm(gradients, self.clip_norm)
        return super().apply_gradients(
            list(zip(gradients, variables, strict=True)),
            name=name,
            experimental_aggregate_gradients=experimental_aggregate_gradients,
        )


class HookClippingAdam(tf_keras.optimizers.legacy.Adam):
    """Clips in the hook that the base calls on gradients before it sums them."""

    def _transform_unaggregated_gradients(self, grads_and_vars):
        gradients, variables = zip(*grads_and_vars, strict=True)
        gradients, _ = tf.clip_by_global_norm(gradients, 1.0)
        return list(zip(gradients, variables, strict=True))


def make_clipping_adam():
    return ClippingAdam(0.01, clip_norm=1.0)


def make_adam_that_need_not_clip():
    return ClippingAdam(0.01, clip_norm=None)


def make_hook_clipping_adam():
    return HookClippingAdam(0.01)


class LineWithAdamInsideTensorflow:
    """A train program whose optimizer is that base."""

    def build(self, strategy):
        self.kernel = tf.Variable(np.ones((3, 1), "float32"), name="kernel")
        self._optimizer = make_adam_inside_tensorflow()

    def variables(self):
        return [self.kernel]

    def optimizer(self):
        return self._optimizer

    def data(self, step):
        rng = np.random.default_rng(step)
        return rng.normal(size=(8, 3)).astype("float32")

    def replica_step(self, batch):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((batch @ self.kernel - 1.0) ** 2) / 8
        gradient = tape.gradient(loss, self.kernel)
        self._optimizer.apply_gradients([(gradient, self.kernel)])
        return loss
