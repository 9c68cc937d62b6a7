"""A model with a train step of its own, which returns what `fit` shows as the loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from distbench.samples.lazy import tf
from distbench.samples.replicas import count_replicas


class ShownModel:
    """A factory of the model: two layers, trained on the mean over all examples.

    Args:
        keras: The Keras that it is of.
        subject: Has the name and the words of what is registered, and `show`, which
            makes of what its step differentiates what it returns. `share` makes that of
            the mean over the own examples, by dividing it by the replicas where nothing
            else is said, `grow` what is differentiated of that, and `combine` the
            gradients that are handed on. If it `computes`, the model has a
            `compute_loss` that gives the share.
    """

    def __init__(self, keras: Any, subject: Any) -> None:
        self._keras = keras
        self._show: Callable[[Any], Any] = subject.show
        self._share = getattr(subject, "share", _divide)
        self._grow = getattr(subject, "grow", _leave)
        self._combine = getattr(subject, "combine", list)
        self._computes = getattr(subject, "computes", False)
        self.__name__ = subject.__name__
        self.__module__ = subject.__module__
        self.__doc__ = subject.__doc__

    def __call__(self) -> Any:
        """The compiled model."""
        keras, show = self._keras, self._show
        make_share, grow, combine = self._share, self._grow, self._combine
        computes = self._computes

        def compute(targets: Any, outputs: Any) -> Any:
            return make_share(tf.reduce_mean((outputs - targets) ** 2))

        class Model(keras.Sequential):  # type: ignore[misc,name-defined]  # it is lazy
            def train_step(self, data: Any) -> Any:
                features, targets = data
                with tf.GradientTape() as tape:
                    outputs = self(features, training=True)
                    if computes:
                        share = self.compute_loss(features, targets, outputs)
                    else:
                        share = compute(targets, outputs)
                    grown = grow(share)
                variables = self.trainable_variables
                gradients = combine(tape.gradient(grown, variables))
                self.optimizer.apply_gradients(zip(gradients, variables, strict=True))
                # Of the loss alone Keras 3 would show its own metric, which has none.
                return {"loss": show(share), "share": share}

        if self._computes:
            Model.compute_loss = _compute_by(compute)
        hidden = keras.layers.Dense(5, activation="tanh", name="hidden")
        model = Model([keras.Input((4,)), hidden, keras.layers.Dense(1, name="output")])
        model.compile(keras.optimizers.SGD(0.1))
        return model

    def data(self, step: int) -> Any:
        """Features and targets; 2 or 4 replicas share them evenly."""
        rng = np.random.default_rng(step)
        features = rng.normal(size=(16, 4)).astype("float32")
        return features, rng.normal(size=(16, 1)).astype("float32")


class OwnMean:
    """What a step differentiates is the mean over the own examples."""

    @staticmethod
    def share(mean: Any) -> Any:
        """All of it, which nothing divides by N."""
        return mean


def scale_gradient(value: Any, factor: float) -> Any:
    """A value as it is; what it is made of gets so many times its gradient."""

    @tf.custom_gradient  # type: ignore[untyped-decorator]  # TensorFlow has no types
    def keep(x: Any) -> tuple[Any, Callable[[Any], Any]]:
        return tf.identity(x), lambda upstream: factor * upstream

    return keep(value)


def shown_model(keras: Any) -> Any:
    """Make a factory of a class that says what its step returns."""
    return lambda subject: ShownModel(keras, subject)


def _compute_by(compute: Callable[[Any, Any], Any]) -> Any:
    def compute_loss(
        self: Any,  # noqa: ARG001  # so is the method of Keras called
        x: Any = None,  # noqa: ARG001
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,  # noqa: ARG001
    ) -> Any:
        return compute(y, y_pred)

    return compute_loss


def _leave(share: Any) -> Any:
    return share


def _divide(mean: Any) -> Any:
    return mean / count_replicas()
