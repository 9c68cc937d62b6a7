"""The optimizers of scripts/ps_table.py: each row is an attribute of this module."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import keras
import tensorflow as tf
import tf_keras

_legacy = tf_keras.optimizers.legacy
_keras2 = tf_keras.optimizers
_v1 = tf.compat.v1.train
_RATE = 0.125

FACTORIES: dict[str, Callable[[], Any]] = {
    "legacy_sgd": partial(_legacy.SGD, _RATE),
    "legacy_sgd_momentum": partial(_legacy.SGD, _RATE, momentum=0.5),
    "legacy_adagrad": partial(_legacy.Adagrad, _RATE),
    "legacy_adam": partial(_legacy.Adam, _RATE),
    "legacy_adam_global_clipnorm": partial(_legacy.Adam, _RATE, global_clipnorm=0.5),
    "tf_keras_sgd": partial(_keras2.SGD, _RATE),
    "tf_keras_sgd_momentum": partial(_keras2.SGD, _RATE, momentum=0.5),
    "tf_keras_adam": partial(_keras2.Adam, _RATE),
    "keras_3_sgd": partial(keras.optimizers.SGD, _RATE),
    "keras_3_adam": partial(keras.optimizers.Adam, _RATE),
    "v1_descent": partial(_v1.GradientDescentOptimizer, _RATE),
    "v1_descent_use_locking": partial(
        _v1.GradientDescentOptimizer, _RATE, use_locking=True
    ),
    "v1_momentum": partial(_v1.MomentumOptimizer, _RATE, 0.5),
    "v1_momentum_use_locking": partial(
        _v1.MomentumOptimizer, _RATE, 0.5, use_locking=True
    ),
    "v1_adam": partial(_v1.AdamOptimizer, _RATE),
    "v1_adam_use_locking": partial(_v1.AdamOptimizer, _RATE, use_locking=True),
}

globals().update(FACTORIES)
