"""Stock optimizers: what shows the same finding with these is not the subject's fault.

Of a subject that is a stock optimizer, or derives from one, it is that one. Else it is
SGD, whose momentum gives it a slot: some of the framework's faults are in its slots.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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


def make_plain_descent() -> Any:
    """An optimizer of TensorFlow 1 that has no state of its own."""
    import tensorflow as tf

    return tf.compat.v1.train.GradientDescentOptimizer(_RATE)


def make_sgd_inside_tensorflow() -> Any:
    """SGD of the Keras that TensorFlow carries."""
    from tensorflow.python.keras.optimizer_v2 import gradient_descent

    return gradient_descent.SGD(_RATE, momentum=_MOMENTUM)
