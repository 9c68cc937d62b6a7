"""A Keras 3 model whose examples have weights, compiled by whoever takes it."""

from __future__ import annotations

from typing import Any

import numpy as np

from distbench.samples.lazy import keras3, keras3_base


class WeightedModel:
    """A factory of the model: two layers, with a loss of the caller's choice.

    Args:
        reduction: How Keras makes one loss of those of the examples.
        subject: Has the name and the words of what is registered.
    """

    def __init__(self, reduction: str, subject: type) -> None:
        self._reduction = reduction
        self.__name__ = subject.__name__
        self.__module__ = subject.__module__
        self.__doc__ = subject.__doc__

    def __call__(self) -> Any:
        """The compiled model."""
        layers = keras3_base.layers
        given = keras3_base.Input((4,))
        hidden = layers.Dense(5, activation="tanh", name="hidden")(given)
        model = keras3_base.Model(given, layers.Dense(1, name="output")(hidden))
        loss = keras3_base.losses.MeanSquaredError(reduction=self._reduction)
        model.compile(keras3.SGD(0.1), loss)
        return model

    def data(self, step: int) -> Any:
        """Features, targets and weights; 2 or 4 replicas share them evenly."""
        rng = np.random.default_rng(step)
        features = rng.normal(size=(16, 4)).astype("float32")
        targets = rng.normal(size=(16, 1)).astype("float32")
        return features, targets, rng.uniform(0.1, 3, size=16).astype("float32")


def weighted_model(reduction: str) -> Any:
    """Make a factory of a class that says what it is about."""
    return lambda subject: WeightedModel(reduction, subject)
