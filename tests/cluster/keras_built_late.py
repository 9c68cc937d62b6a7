"""Models that their steps build, as users bring them; the tests check their targets."""

from __future__ import annotations

from typing import Any

import numpy as np


def data(step: int) -> Any:
    rng = np.random.default_rng(step)
    return tuple(rng.normal(size=(8, n)).astype("float32") for n in (3, 2))


def make_head() -> Any:
    """A model that is built, with a layer behind it that its step alone calls."""
    import tensorflow as tf
    import tf_keras as keras

    class Headed(keras.Model):
        def train_step(self, data: Any) -> Any:
            features, targets = data
            with tf.GradientTape() as tape:
                found = self.head(self(features, training=True))
                errors = tf.reduce_mean((found - targets) ** 2, -1)
                loss = tf.nn.compute_average_loss(errors)
            self.optimizer.minimize(loss, self.trainable_variables, tape)
            return {"loss": loss}

    given = keras.Input((3,))
    model = Headed(given, keras.layers.Dense(4, "tanh")(given))
    model.head = keras.layers.Dense(2)
    model.compile(keras.optimizers.Adam(0.01))
    return model


def make_raises() -> Any:
    """A step that builds its layers raises where there are several replicas."""
    import tensorflow as tf
    import tf_keras as keras

    class Raises(keras.Sequential):
        def train_step(self, data: Any) -> Any:
            if tf.distribute.get_strategy().num_replicas_in_sync > 1:
                raise KeyError("one device alone")
            return super().train_step(data)

    model = Raises([keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    return model


def _make_summed(keras: Any) -> Any:
    """A model that is built where no replica runs, with a layer that asks for one."""
    import tensorflow as tf

    class Summed(keras.layers.Layer):
        def call(self, inputs: Any) -> Any:
            context = tf.distribute.get_replica_context()
            return inputs - context.all_reduce("mean", tf.reduce_mean(inputs, 0))

    model = keras.Sequential([keras.Input((3,)), Summed(), keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    return model


def make_summed() -> Any:
    """One of tf_keras."""
    import tf_keras

    return _make_summed(tf_keras)


def make_summed_keras3() -> Any:
    """One of Keras 3."""
    import keras

    return _make_summed(keras)


def make_keras3(*, called: bool = False) -> Any:
    """A model of Keras 3 without `call`, which Keras cannot build for replicas.

    Args:
        called: Whether it has one, though the step does not need it.
    """
    import keras
    import tensorflow as tf

    class Coder(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = keras.layers.Dense(2, "tanh")
            self.decoder = keras.layers.Dense(3)

        def train_step(self, data: Any) -> Any:
            features, _ = data
            replicas = tf.distribute.get_strategy().num_replicas_in_sync
            with tf.GradientTape() as tape:
                found = self.decoder(self.encoder(features))
                loss = tf.reduce_mean((found - features) ** 2) / replicas
            variables = self.trainable_variables
            gradients = tape.gradient(loss, [v.value for v in variables])
            self.optimizer.apply_gradients(zip(gradients, variables, strict=True))
            return {"loss": loss}

    class Called(Coder):
        def call(self, features: Any) -> Any:
            return self.decoder(self.encoder(features))

    model = (Called if called else Coder)()
    model.compile(keras.optimizers.Adam(0.01))
    return model


def make_keras3_called() -> Any:
    return make_keras3(called=True)
