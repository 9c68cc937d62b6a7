"""Stock optimizers of the four families that train under `tf.distribute`."""

from __future__ import annotations

from typing import Any


def make_legacy_adam() -> Any:
    """Adam of Keras 2.10 and before."""
    from tf_keras.optimizers import legacy

    return legacy.Adam(0.05)


def make_legacy_momentum() -> Any:
    """SGD with Nesterov's momentum of Keras 2.10 and before."""
    from tf_keras.optimizers import legacy

    return legacy.SGD(0.05, momentum=0.5, nesterov=True)


def make_keras2_adamw() -> Any:
    """AdamW of Keras 2.11 to 2.15, with a decay and an average of its weights."""
    import tf_keras

    return tf_keras.optimizers.AdamW(0.05, weight_decay=0.01, use_ema=True)


def make_keras2_rmsprop() -> Any:
    """RMSprop of Keras 2.11 to 2.15."""
    import tf_keras

    return tf_keras.optimizers.RMSprop(0.05, momentum=0.5)


def make_keras3_adam() -> Any:
    """Adam of Keras 3."""
    import keras

    return keras.optimizers.Adam(0.05)


def make_keras3_momentum() -> Any:
    """SGD with momentum of Keras 3."""
    import keras

    return keras.optimizers.SGD(0.05, momentum=0.5)


def make_v1_adam() -> Any:
    """Adam of TensorFlow 1."""
    import tensorflow as tf

    return tf.compat.v1.train.AdamOptimizer(0.05)


def make_v1_momentum() -> Any:
    """Momentum of TensorFlow 1."""
    import tensorflow as tf

    return tf.compat.v1.train.MomentumOptimizer(0.05, 0.5)
