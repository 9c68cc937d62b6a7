"""Stock optimizers: what shows the same finding with these is not the subject's fault.

Of a subject that is a stock optimizer, or derives from one, it is that one. Else it is
SGD, whose momentum gives it a slot: some of the framework's faults are in its slots.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

_RATE = 0.125
_MOMENTUM = 0.5


Made = tuple[Any, Mapping[str, Any]]
"""A class of the framework, and what one is made with."""


def make_control(
    name: str,
    options: Mapping[str, float],
    stock: Made | None = None,
    wrap: Made | None = None,
) -> Any:
    """A stock optimizer with options of its base class.

    They are set as attributes, which the families read when they build or apply: a
    constructor refuses two clips, but a path may have set another than the user.

    Args:
        name: The function of this module that makes SGD.
        options: Values by attribute.
        stock: What to make in place of SGD, with the optimizer's configuration.
        wrap: The framework's own optimizer around the subject's.
    """
    optimizer = globals()[name]() if stock is None else make_stock(*stock)
    for option, value in options.items():
        setattr(optimizer, option, value)
    if wrap is None:
        return optimizer
    around, settings = wrap
    return around(optimizer, **settings)


def make_stock(kind: Any, config: Mapping[str, Any]) -> Any:
    """An optimizer of a class; those of TensorFlow 1 have no `from_config`."""
    if hasattr(kind, "from_config"):
        return kind.from_config(dict(config))
    return kind(**config)


class ModelControl:
    """A stock model with a stock optimizer, as a subject of its own.

    Args:
        name: See `make_control`.
        options: See `make_control`.
        stock: See `make_control`.
        wrap: See `make_control`.
        keras: The package of the model, `tf_keras` or `keras`.
        examples: Sizes of the global batches, by step.
        normalised: Whether a layer keeps statistics of its inputs.
        compiled: Whether XLA compiles the step.
        at_once: How many steps a call of the train function may take.
    """

    def __init__(
        self,
        name: str,
        options: Mapping[str, float],
        stock: Made | None = None,
        wrap: Made | None = None,
        *,
        keras: str,
        examples: Sequence[int],
        normalised: bool,
        compiled: bool,
        at_once: int,
    ) -> None:
        self._make_optimizer = partial(make_control, name, options, stock, wrap)
        self._keras = keras
        self._examples = examples
        self._normalised = normalised
        self._compiled = compiled
        self._at_once = at_once

    def __call__(self) -> Any:
        """Make and compile the model."""
        keras = importlib.import_module(self._keras)
        layers = [keras.layers.Input((3,)), keras.layers.Dense(2)]
        if self._normalised:
            layers.append(keras.layers.BatchNormalization())
        model = keras.Sequential(layers)
        model.compile(
            self._make_optimizer(),
            "mse",
            jit_compile=self._compiled,
            steps_per_execution=self._at_once,
        )
        return model

    def data(self, step: int) -> Any:
        """Inputs and targets."""
        examples = self._examples[step % len(self._examples)]
        rng = np.random.default_rng((step, examples))
        shapes = ((examples, 3), (examples, 2))
        return tuple(rng.normal(size=shape).astype(np.float32) for shape in shapes)


def make_legacy_sgd() -> Any:
    """SGD of tf_keras' legacy optimizers."""
    import tf_keras

    return tf_keras.optimizers.legacy.SGD(_RATE, momentum=_MOMENTUM)


def make_keras2_sgd() -> Any:
    """SGD of tf_keras' new optimizers."""
    import tf_keras

    return tf_keras.optimizers.SGD(_RATE, momentum=_MOMENTUM)


def make_keras3_sgd() -> Any:
    """SGD of Keras 3."""
    import keras

    return keras.optimizers.SGD(_RATE, momentum=_MOMENTUM)


def make_v1_sgd() -> Any:
    """SGD of TensorFlow 1."""
    import tensorflow as tf

    return tf.compat.v1.train.MomentumOptimizer(_RATE, _MOMENTUM)


def make_sgd_inside_tensorflow() -> Any:
    """SGD of the Keras that TensorFlow carries."""
    from tensorflow.python.keras.optimizer_v2 import gradient_descent

    return gradient_descent.SGD(_RATE, momentum=_MOMENTUM)
