"""Keras models whose step XLA compiles (`jit_compile=True`)."""

from __future__ import annotations

import importlib
from typing import Any

# The bench looks for it in the module of the callable.
from keras_models import data as data
from keras_steps import make_with_step, train


def _make_compiled(package: str, loss: Any = "mse") -> Any:
    keras = importlib.import_module(package)
    layers = [keras.layers.Dense(4, activation="tanh"), keras.layers.Dense(1)]
    model = keras.Sequential([keras.layers.Input((3,)), *layers])
    sgd = keras.optimizers.SGD(0.1, momentum=0.9)
    model.compile(sgd, loss, metrics=["mae"], jit_compile=True)
    return model


def make_compiled() -> Any:
    """A step that XLA compiles, in Keras 2."""
    return _make_compiled("tf_keras")


def make_compiled_keras3() -> Any:
    """A step that XLA compiles, in Keras 3."""
    return _make_compiled("keras")


def make_compiled_scaled() -> Any:
    """The same, and what is not finite is left out."""
    import keras

    model = make_compiled_keras3()
    scaled = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1))
    model.compile(scaled, "mse", jit_compile=True)
    return model


def make_compiled_wrong() -> Any:
    """The same with a mean that Keras 3 does not divide by the replicas."""

    def compute_mean(true: Any, predicted: Any) -> Any:
        import keras

        return keras.ops.mean((true - predicted) ** 2)

    return _make_compiled("keras", compute_mean)


def make_compiled_otherwise() -> Any:
    """A step that is another one where XLA compiles it."""
    import tf_keras as keras

    def step(model: Any, x: Any, y: Any) -> Any:
        import tensorflow as tf

        count = tf.distribute.get_strategy().num_replicas_in_sync
        part = 1.0 if model.jit_compile else 1.0 / count
        loss = train(model, lambda: part * tf.reduce_mean((model(x) - y) ** 2))
        return {"loss": loss}

    model = make_with_step(step)
    sgd = keras.optimizers.SGD(0.1, momentum=0.9)
    model.compile(sgd, "mse", jit_compile=True)
    return model
