"""Stock models: what shows the same finding with these is not the subject's fault.

Of a model that consists of Keras' own parts alone it is the same again, made from its
description and given the same data. Else it is a small one with the same traits.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

_OWN = ("keras", "tf_keras")
"""Packages whose classes a description may name."""
_MOST_BYTES = 16 << 20
"""How large batches may be that are written down for a control that is seldom asked."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RebuiltModel:
    """A model made from its description, as a subject of its own.

    Attributes:
        keras: The package of the model, `tf_keras` or `keras`.
        described: See `describe_model`.
        batches: What it trained on, by step.
        make_optimizer: Makes its optimizer.
    """

    keras: str
    described: Mapping[str, Any]
    batches: Sequence[Any]
    make_optimizer: Callable[[], Any]

    def __call__(self) -> Any:
        """Make and compile the model."""
        saving = importlib.import_module(self.keras).saving
        described = dict(self.described)
        compiled = dict(described.pop("compile_config"))
        del compiled["optimizer"]
        model = saving.deserialize_keras_object(described)
        options = saving.deserialize_keras_object(compiled)
        model.compile(optimizer=self.make_optimizer(), **options)
        return model

    def data(self, step: int) -> Any:
        """The global batch of a step."""
        return self.batches[step % len(self.batches)]


@dataclass(frozen=True, kw_only=True, eq=False)
class SmallModel:
    """A model of a layer or two, as a subject of its own.

    Attributes:
        keras: The package of the model, `tf_keras` or `keras`.
        make_optimizer: Makes its optimizer.
        examples: Sizes of the global batches, by step.
        normalised: See `keeps_statistics`.
        masked: Whether what is predicted has a mask.
        scalar: Whether a loss is a mean already when Keras gets it.
        steps_itself: Whether a step of the user's own makes the loss: how that is
            divided is nothing that Keras does.
        compiled: Whether XLA compiles the step.
        at_once: How many steps a call of the train function may take.
    """

    keras: str
    make_optimizer: Callable[[], Any]
    examples: Sequence[int]
    normalised: bool
    masked: bool
    scalar: bool
    steps_itself: bool
    compiled: bool
    at_once: int

    def __call__(self) -> Any:
        """Make and compile the model."""
        keras = importlib.import_module(self.keras)
        layers = [keras.layers.Input((5, 3) if self.masked else (3,))]
        if self.masked:
            layers.append(keras.layers.Masking())
        layers.append(keras.layers.Dense(2))
        if self.normalised:
            layers.append(keras.layers.BatchNormalization())
        kind = _add_step(keras.Sequential) if self.steps_itself else keras.Sequential
        model = kind(layers)
        model.compile(
            self.make_optimizer(),
            _average_squares if self.scalar else "mse",
            jit_compile=self.compiled,
            steps_per_execution=self.at_once,
        )
        return model

    def data(self, step: int) -> Any:
        """Inputs and targets; with a mask, sequences of 1 to 5 elements."""
        examples = self.examples[step % len(self.examples)]
        rng = np.random.default_rng((step, examples))
        times = (5,) if self.masked else ()
        shapes = ((examples, *times, 3), (examples, *times, 2))
        inputs, targets = (rng.normal(size=s).astype(np.float32) for s in shapes)
        if self.masked:
            lengths = 1 + np.arange(examples) * 5 // examples
            inputs[np.arange(5) >= lengths[:, None]] = 0
        return inputs, targets


def _add_step(base: type) -> type:
    """A class of models whose step divides by the examples of all replicas."""

    class Stepping(base):  # of either Keras
        def train_step(self, data: Any) -> Any:
            inputs, targets = data
            replicas = tf.distribute.get_replica_context()
            examples = tf.cast(tf.shape(inputs)[0], tf.float32)
            count = replicas.all_reduce(tf.distribute.ReduceOp.SUM, examples)
            with tf.GradientTape() as tape:
                rest = self(inputs, training=True) - targets
                loss = tf.reduce_sum(tf.square(rest)) / count
            variables = self.trainable_variables
            gradients = tape.gradient(loss, variables)
            self.optimizer.apply_gradients(zip(gradients, variables, strict=True))
            return {"loss": loss}

    return Stepping


def _average_squares(true: Any, predicted: Any) -> Any:
    return tf.reduce_mean(tf.square(true - predicted))


def describe_model(
    model: Any, keras: str, batches: Sequence[Any]
) -> Mapping[str, Any] | None:
    """What to make a model from again; None if there is more to it than Keras' own.

    Its optimizer is left aside, whatever it is.

    Args:
        model: A compiled one.
        keras: Its package.
        batches: What it trains on: arrays, or nests of them.
    """
    layers = [model, *model._flatten_layers(include_self=False)]
    if not all(is_own(type(layer).__module__) for layer in layers):
        return None
    if count_bytes(batches) > _MOST_BYTES:
        return None
    saving = importlib.import_module(keras).saving
    with warnings.catch_warnings():
        # Of a lambda, which is then found below.
        warnings.simplefilter("ignore")
        try:
            described = dict(saving.serialize_keras_object(model))
        except Exception:  # noqa: BLE001  # whatever a get_config of the user's raises
            return None
    compiled = described["compile_config"]
    described["compile_config"] = {**compiled, "optimizer": None}
    return described if _names_own_alone(described) else None


def keeps_statistics(model: Any) -> bool:
    """Whether a layer that Keras made, or began, holds weights that nobody trains.

    What a layer that is wholly the user's own keeps, no layer of Keras' answers for.
    """
    return any(
        layer.non_trainable_weights and _begin_layer(type(layer)) != "Layer"
        for layer in model._flatten_layers(include_self=False)
        if not any(layer._flatten_layers(include_self=False))
    )


def _begin_layer(kind: type) -> str:
    """The nearest class of Keras' own that a layer's is, or is made from."""
    return next(c.__name__ for c in kind.__mro__ if is_own(c.__module__))


def count_bytes(nest: Any) -> int:
    """Size of all arrays in a nest of tuples, lists and mappings."""
    if isinstance(nest, Mapping):
        return sum(map(count_bytes, nest.values()))
    if isinstance(nest, (list, tuple)):
        return sum(map(count_bytes, nest))
    return int(np.asarray(nest).nbytes)


def _names_own_alone(described: Any) -> bool:
    """Whether a description names no class or function but Keras' own."""
    if isinstance(described, Mapping):
        if described.get("class_name") == "__lambda__":
            return False
        is_registered = described.get("registered_name") is not None
        if is_registered and not is_own(described.get("module") or ""):
            return False
        return all(map(_names_own_alone, described.values()))
    if isinstance(described, (list, tuple)):
        return all(map(_names_own_alone, described))
    return True


def is_own(module: str) -> bool:
    """Whether a module, by its name, is part of Keras."""
    return module.partition(".")[0] in _OWN
