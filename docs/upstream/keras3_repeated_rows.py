"""Keras 3's rules for sparse gradients take every slice for a gradient of its own.

Where: `update_step` of the optimizers in keras/src/optimizers, under
keras/src/backend/tensorflow/sparse.py: nothing adds up rows that occur twice in an
`IndexedSlices`, as every lookup of an embedding with repeated ids makes them. tf_keras
does so in `_resource_apply_sparse_duplicate_indices` (legacy) and
`_deduplicate_sparse_grad` (new).

Where a row occurs often the centred RMSprop raises. Each of k slices adds the square of
its own gradient to the mean square, and to the mean the sum: with a rate of 1 - rho of
0.1 the variance is 0.1 k g^2 - (0.1 k g)^2, below 0 from k = 11 on. The division by its
root, NaN, then looks in `indexed_slices_union_indices_and_values` for the place of each
row, which `tf.scatter_nd` has made the sum of the places of all its slices.
"""

import keras
import tensorflow as tf
import tf_keras

TWICE = tf.IndexedSlices(
    tf.constant([[1.0], [1.0]]), tf.constant([0, 0]), tf.constant([2, 1], tf.int64)
)


def step(optimizer, gradient):
    """Row 0 after one step from 0."""
    variable = tf.Variable([[0.0], [0.0]])
    optimizer.build([variable])
    optimizer.apply_gradients([(gradient, variable)])
    return round(float(variable[0, 0]), 4)


for name in ("Adam", "Adagrad", "RMSprop"):
    print(f"{name}, row 0 twice with a gradient of 1; due is the dense one's step")
    for words, module in (("tf_keras", tf_keras), ("Keras 3", keras)):
        make = getattr(module.optimizers, name)
        dense = step(make(0.1), tf.convert_to_tensor(TWICE))
        print(f"  {words}: dense {dense}, slices {step(make(0.1), TWICE)}")


def repeat(count):
    """Slices of row 0 alone with a gradient of 1 each."""
    rows = tf.zeros([count], tf.int32)
    return tf.IndexedSlices(tf.ones([count, 1]), rows, tf.constant([2, 1], tf.int64))


print("Centred RMSprop, row 0 so many times")
for count in (1, 5, 11):
    try:
        moved = step(keras.optimizers.RMSprop(0.1, centered=True), repeat(count))
    except tf.errors.InvalidArgumentError as error:
        moved = error.message.partition(" [Op")[0].rpartition("}} ")[2]
    print(f"  {count}: {moved}")
