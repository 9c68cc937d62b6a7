"""Clips of sparse gradients take repeated rows for rows of their own.

Where: `tf.clip_by_norm` and `tf.clip_by_value` work on the values of `IndexedSlices`;
tf_keras/src/optimizers/optimizer.py, tf_keras/src/optimizers/utils.py (legacy) and
keras/src/optimizers/base_optimizer.py call them before rows are added up. A norm of the
slices is not that of the gradient: of two slices of 1 in one row it is 1.41 and not 2.
"""

import keras
import tensorflow as tf
import tf_keras

TWICE = tf.IndexedSlices(
    tf.constant([[1.0], [1.0]]), tf.constant([0, 0]), tf.constant([2, 1], tf.int64)
)
OPTIMIZERS = (
    ("tf_keras legacy", tf_keras.optimizers.legacy.SGD),
    ("tf_keras", tf_keras.optimizers.SGD),
    ("Keras 3", keras.optimizers.SGD),
)


def step(optimizer, gradient):
    """Row 0 after one step of descent with rate 1 from 0."""
    variable = tf.Variable([[0.0], [0.0]])
    if hasattr(optimizer, "build"):
        optimizer.build([variable])
    optimizer.apply_gradients([(gradient, variable)])
    return round(float(variable[0, 0]), 4)


for option in ("clipnorm", "clipvalue"):
    print(f"{option}=1, row 0 twice with a gradient of 1; due -1")
    for name, make in OPTIMIZERS:
        dense = step(make(1.0, **{option: 1.0}), tf.convert_to_tensor(TWICE))
        slices = step(make(1.0, **{option: 1.0}), TWICE)
        print(f"  {name}: dense {dense}, slices {slices}")
