"""Correct programs whose initial values are drawn without a seed of their own."""

from __future__ import annotations

import os

import numpy as np

from distbench.samples.lazy import keras, legacy, tf
from distbench.unusual.program import unusual


@unusual()
class KerasModelWithoutSeed:
    """A Keras model as it is mostly written: no initializer is given a seed."""

    examples = 22

    def build(self, strategy):
        del strategy
        self.model = keras.Sequential(
            [keras.Input((4,)), keras.layers.Dense(5, "tanh"), keras.layers.Dense(2)]
        )
        self._optimizer = legacy.Adam(0.01)

    def variables(self):
        return self.model.variables

    def optimizer(self):
        return self._optimizer

    def data(self, step):
        rng = np.random.default_rng(step)
        features = rng.normal(size=(self.examples, 4)).astype("float32")
        return features, rng.normal(size=(self.examples, 2)).astype("float32")

    def replica_step(self, batch):
        features, targets = batch
        with tf.GradientTape() as tape:
            losses = tf.reduce_sum((self.model(features) - targets) ** 2, axis=1)
            loss = tf.reduce_sum(losses) / self.examples
        variables = self.model.trainable_variables
        gradients = tape.gradient(loss, variables)
        self._optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return loss


@unusual(clusters=("mirrored:2",))
class StartsFromEntropy(KerasModelWithoutSeed):
    """The initial values come from the machine's own entropy, which no seed governs."""

    def build(self, strategy):
        super().build(strategy)
        rng = np.random.default_rng(list(os.urandom(8)))
        for variable in self.model.variables:
            variable.assign(rng.normal(size=variable.shape).astype("float32") / 3)
