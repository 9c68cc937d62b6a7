"""Subjects for scripts that show findings; nothing here knows of distbench."""

from __future__ import annotations

import tensorflow as tf
import tf_keras


def make_rate_by_strategy():
    """Twice the learning rate wherever there is a strategy, parameter servers too."""
    rate = 0.25 if tf.distribute.has_strategy() else 0.125
    return tf_keras.optimizers.legacy.SGD(rate, momentum=0.5)


def make_rate():
    """Correct: the same learning rate everywhere."""
    return tf_keras.optimizers.legacy.SGD(0.125, momentum=0.5)
