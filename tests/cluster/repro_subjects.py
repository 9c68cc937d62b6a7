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


class _ReadThenAssigned(tf_keras.optimizers.legacy.SGD):
    """Under parameter servers others write between its reading and its writing."""

    def _resource_apply_dense(self, grad, var, apply_state=None):
        value = tf.identity(var)
        served = tf.distribute.ParameterServerStrategy
        if isinstance(tf.distribute.get_strategy(), served):
            with tf.control_dependencies([value]):
                begun = tf.timestamp()
            (now,) = tf.while_loop(
                lambda now: now < begun + 0.05, lambda _: (tf.timestamp(),), (begun,)
            )
            with tf.control_dependencies([now]):
                value = tf.identity(value)
        return var.assign(value - 0.25 * grad)


def make_read_then_assigned():
    """What is read, changed and assigned undoes what others wrote meanwhile."""
    return _ReadThenAssigned(0.25)


def make_in_place():
    """Correct: the variable is changed in place."""
    return tf_keras.optimizers.legacy.SGD(0.25)
