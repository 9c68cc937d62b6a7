"""Compiled models of tf_keras that nothing builds but a step of theirs."""

from __future__ import annotations

from typing import Any

import numpy as np

from distbench.samples.lazy import keras, tf
from distbench.samples.replicas import all_reduce


class BuiltLate:
    """A factory of the model, which `fit` trains.

    Args:
        subject: Has the name and the words of what is registered, and makes the model.
    """

    def __init__(self, subject: type) -> None:
        self._make = subject().make
        self.__name__ = subject.__name__
        self.__module__ = subject.__module__
        self.__doc__ = subject.__doc__

    def __call__(self) -> Any:
        """The compiled model."""
        return self._make()

    def data(self, step: int) -> Any:
        """Two arrays of float32, [16, 4] and [16, 2]; 2 or 4 replicas share them."""
        rng = np.random.default_rng(step)
        return tuple(rng.normal(size=(16, n)).astype("float32") for n in (4, 2))


class Networks:
    """What makes a GAN that has no `call`: two networks, of which each has a loss."""

    def make(self) -> Any:
        """The model: its generator takes two numbers, and its critic four."""
        given = self
        dense = keras.layers.Dense

        class Gan(keras.Model):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.generator = keras.Sequential([dense(5, "tanh"), dense(4)])
                self.critic = keras.Sequential([dense(5, "tanh"), dense(1)])
                self.rules = [keras.optimizers.Adam(0.01) for _ in range(2)]
                self.error = keras.losses.BinaryCrossentropy(
                    from_logits=True, reduction="none"
                )

            def train_step(self, data: Any) -> Any:
                real, noise = data
                ones = tf.ones((tf.shape(real)[0], 1))
                with tf.GradientTape() as tape:
                    critic = self.critic
                    right = self.error(ones, critic(real))
                    wrong = self.error(0 * ones, critic(self.generator(noise)))
                    loss = given.share_critics(right + wrong)
                self.rules[0].minimize(loss, critic.trainable_variables, tape)
                with tf.GradientTape() as tape:
                    errors = self.error(ones, critic(self.generator(noise)))
                    loss = given.share_generators(errors)
                self.rules[1].minimize(loss, self.generator.trainable_variables, tape)
                return {"generator": tf.reduce_mean(errors)}

        model = Gan()
        model.compile()
        return model

    def share_critics(self, errors: Any) -> Any:
        """A replica's part of the mean of what the critic gets wrong."""
        return tf.nn.compute_average_loss(errors)

    def share_generators(self, errors: Any) -> Any:
        """That of what the critic tells from real examples."""
        return tf.nn.compute_average_loss(errors)


class Widened:
    """What makes a model whose `call` takes another thing than the step is given."""

    def make(self) -> Any:
        """The model: a layer takes the features and, behind them, their squares."""
        given = self

        class Model(keras.Model):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.hidden = keras.layers.Dense(5, "tanh")
                self.out = keras.layers.Dense(2)

            def call(self, features: Any, scale: Any = None) -> Any:
                return self.out(self.hidden(features) * scale)

            def train_step(self, data: Any) -> Any:
                features, targets = data
                scale = 1.0 + features[:, :1] ** 2
                wide = tf.concat([features, features**2], axis=-1)
                with tf.GradientTape() as tape:
                    errors = tf.reduce_mean((self(wide, scale) - targets) ** 2, -1)
                    loss = given.share(errors)
                self.optimizer.minimize(loss, self.trainable_variables, tape)
                return {"loss": loss}

        model = Model()
        model.compile(keras.optimizers.SGD(0.1, momentum=0.9))
        return model

    def share(self, errors: Any) -> Any:
        """A replica's part of the mean."""
        return tf.nn.compute_average_loss(errors)


class Centred:
    """What makes a model whose `call` takes a mean over all replicas' examples."""

    def make(self) -> Any:
        """The model: it takes the mean away from what its first layer gives."""
        given = self

        class Model(keras.Model):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.hidden = keras.layers.Dense(5, "tanh")
                self.out = keras.layers.Dense(2)

            def call(self, features: Any) -> Any:
                hidden = self.hidden(features)
                return self.out(hidden - given.average(tf.reduce_mean(hidden, 0)))

        model = Model()
        model.compile(keras.optimizers.Adam(0.01), "mse")
        return model

    def average(self, own: Any) -> Any:
        """The mean of all examples, of that of the own ones."""
        return all_reduce("mean", own)


class Normalised:
    """What makes a model of layers in turn, with statistics of all replicas."""

    def make(self) -> Any:
        """The model: what stands behind the normalisation is built after it."""
        given, layers = self, keras.layers

        class Rule(keras.optimizers.SGD):  # type: ignore[misc]
            def aggregate_gradients(self, pairs: Any) -> Any:
                pairs = list(pairs)
                reduced = list(super().aggregate_gradients(pairs))
                return given.choose(pairs, reduced)

        model = keras.Sequential(
            [
                layers.Dense(5, name="hidden"),
                layers.BatchNormalization(synchronized=True, name="normed"),
                layers.Dense(2, "tanh", name="out"),
            ],
            name="network",
        )
        model.compile(Rule(0.1, momentum=0.9), self.measure)
        return model

    def measure(self, targets: Any, outputs: Any) -> Any:
        """What each example's outputs are off by."""
        return keras.losses.mse(targets, outputs)

    def choose(self, own: Any, reduced: Any) -> Any:  # noqa: ARG002  # mistakes take it
        """The gradients to go on with, of the replica's own and of all replicas'."""
        return reduced
