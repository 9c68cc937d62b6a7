"""Compiled Keras models with batch normalisation and the like."""

from __future__ import annotations

import importlib
from typing import Any

# The bench looks for it in the module of the callable.
from keras_models import data as data
from keras_models import draw


def _make_synchronised(package: str) -> Any:
    keras = importlib.import_module(package)
    layers = [keras.layers.Dense(4), keras.layers.BatchNormalization(synchronized=True)]
    model = keras.Sequential([keras.layers.Input((3,)), *layers, keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.05), "mse")
    return model


def make_synchronised() -> Any:
    """Batch normalisation over all replicas in Keras 2."""
    return _make_synchronised("tf_keras")


def make_keras3_synchronised() -> Any:
    """The same in Keras 3, where each replica comes to the same averages."""
    return _make_synchronised("keras")


def make_keras3_statistics() -> Any:
    """Batch normalisation of Keras 3, each of whose replicas keeps its own averages."""
    import keras

    layers = [keras.layers.Dense(4), keras.layers.BatchNormalization()]
    model = keras.Sequential([keras.layers.Input((3,)), *layers, keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.05), "mse")
    return model


def make_keras3_own_statistics() -> Any:
    """A layer of the user's own that keeps what each replica's examples give."""
    import keras

    class Centred(keras.layers.Layer):
        def build(self, shape: Any) -> None:
            self.mean = self.add_weight(shape=shape[1:], trainable=False, name="mean")

        def call(self, inputs: Any) -> Any:
            mean = keras.ops.mean(inputs, axis=0)
            self.mean.assign(0.9 * self.mean + 0.1 * mean)
            return inputs - mean

    layers = [keras.layers.Dense(4), Centred(), keras.layers.Dense(1)]
    model = keras.Sequential([keras.layers.Input((3,)), *layers])
    model.compile(keras.optimizers.SGD(0.05), "mse")
    return model


def make_keras3_averaged_variances() -> Any:
    """Layers that share their means, and average the variances of the shards."""
    import keras
    import tensorflow as tf

    def average(value: Any) -> Any:
        context = tf.distribute.get_replica_context()
        # A model is built outside of any replica.
        return value if context is None else context.all_reduce("mean", value)

    class Normalised(keras.layers.Layer):
        def call(self, inputs: Any) -> Any:
            own = tf.reduce_mean((inputs - tf.reduce_mean(inputs, 0)) ** 2, 0)
            mean = average(tf.reduce_mean(inputs, 0))
            return (inputs - mean) / tf.sqrt(average(own) + 0.1)

    layers = [keras.layers.Dense(4), Normalised(), keras.layers.Dense(1)]
    model = keras.Sequential([keras.layers.Input((3,)), *layers])
    model.compile(keras.optimizers.SGD(0.05), "mse")
    return model


class BeforeStatistics:
    """A bias that batch normalisation takes away, and random numbers behind that.

    The gradient of the bias is rounding alone. There is much of it in the first shard,
    which varies little.
    """

    __name__ = "BeforeStatistics"

    def __call__(self) -> Any:
        import tf_keras as keras

        hidden = [keras.layers.Dense(6), keras.layers.BatchNormalization()]
        hidden += [keras.layers.Dropout(0.3), keras.layers.Dense(1)]
        model = keras.Sequential([keras.layers.Input((3,)), *hidden])
        model.compile(keras.optimizers.Adam(0.01), "mse")
        return model

    def data(self, step: int) -> Any:
        x, y = draw(step, 8, 3), draw(step + 100, 8, 1)
        x[:4] *= 0.01
        return x, y


make_before_statistics = BeforeStatistics()
