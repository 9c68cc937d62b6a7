"""Keras 3 does not divide a loss function's scalar by the number of replicas.

Where: `reduce_values` in keras/src/losses/loss.py returns a value without dimensions
as it is, before it comes to `scale_loss_for_distribution`. So `compile(loss=f)` trains
with N times the gradient if f returns a mean, and with the right one if f returns a
loss for each example. tf_keras divides both (`LossesContainer.__call__` in
tf_keras/src/engine/compile_utils.py).

distbench: `loss-not-scaled` at `loss`, origin `framework`. No thread on Keras 3 was
found.
"""

import keras
import numpy as np
import tensorflow as tf
import tf_keras

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0],
    [tf.config.LogicalDeviceConfiguration()] * 2,
)
X = np.array([[1.0], [1.0], [1.0], [1.0]], np.float32)
Y = np.array([[1.0], [2.0], [3.0], [4.0]], np.float32)


def per_example(true, predicted):
    """A loss for each example."""
    return tf.reduce_sum((predicted - true) ** 2, axis=-1)


def mean(true, predicted):
    """Their mean."""
    return tf.reduce_mean((predicted - true) ** 2)


def train(module, loss, devices):
    """The weight after one step of descent with rate 1 from 0."""
    with tf.distribute.MirroredStrategy(devices).scope():
        dense = module.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
        model = module.Sequential([module.layers.Input((1,)), dense])
        model.compile(module.optimizers.SGD(1.0), loss)
    model.fit(X, Y, batch_size=4, epochs=1, shuffle=False, verbose=0)
    return round(float(np.ravel(dense.get_weights()[0])[0]), 4)


for loss in (per_example, mean):
    print(f"{loss.__name__}: on one device, on two")
    for words, module in (("tf_keras:", tf_keras), ("Keras 3: ", keras)):
        one, two = (train(module, loss, d) for d in (["cpu:0"], ["cpu:0", "cpu:1"]))
        print(f"  {words} {one}, {two}")
