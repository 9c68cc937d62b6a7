"""Stock optimizers: what shows the same finding with these is not the subject's fault.

Momentum gives them a slot, since some of the framework's faults are in its slots.
"""

from __future__ import annotations

from typing import Any

_RATE = 0.125
_MOMENTUM = 0.5


def make_legacy_sgd() -> Any:
    """SGD of tf_keras' legacy optimizers."""
    import tf_keras

    return tf_keras.optimizers.legacy.SGD(_RATE, momentum=_MOMENTUM)


def make_keras2_sgd() -> Any:
    """SGD of tf_keras' new optimizers."""
    import tf_keras

    return tf_keras.optimizers.SGD(_RATE, momentum=_MOMENTUM)


def make_sgd_inside_tensorflow() -> Any:
    """SGD of the Keras that TensorFlow carries."""
    from tensorflow.python.keras.optimizer_v2 import gradient_descent

    return gradient_descent.SGD(_RATE, momentum=_MOMENTUM)
