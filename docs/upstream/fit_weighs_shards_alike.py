"""The last batch of an epoch: `fit` gives the shards of all replicas the same weight.

Where: `scale_loss_for_distribution` in tf_keras/src/utils/losses_utils.py (called by
`LossesContainer.__call__` in tf_keras/src/engine/compile_utils.py) and in
keras/src/losses/loss.py. Each replica takes the mean over its own examples and divides
it by the number of replicas. That is the mean over all examples only if the shards are
equally large, which the last batch of most epochs does not allow: of three examples on
two replicas, the lone one counts as much as the other two.

A *first* batch that cannot be shared evenly makes Keras 3 raise: to build the model,
`TensorFlowTrainer._maybe_symbolic_build` in keras/src/backend/tensorflow/trainer.py
takes the mean of the shards themselves.

distbench: `mean-of-means` at `loss`, origin `framework`, with `--split`. TensorFlow's
guide warns of it for loops of one's own
(https://github.com/tensorflow/tensorflow/issues/45923); no thread on `fit` was found.
"""

import keras
import numpy as np
import tensorflow as tf
import tf_keras

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0],
    [tf.config.LogicalDeviceConfiguration()] * 2,
)
# A batch of four, which moves nothing, and one of three.
INPUTS = np.array([[0.0]] * 4 + [[1.0], [2.0], [3.0]], "float32")
TARGETS = np.array([[0.0]] * 6 + [[6.0]], "float32")


def train(module, strategy, first=0):
    """The weight after an epoch from 0, with a rate of 1."""
    with strategy.scope():
        layer = module.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
        model = module.Sequential([module.layers.Input((1,)), layer])
        model.compile(module.optimizers.SGD(1.0), "mse", jit_compile=False)
    examples = tf.data.Dataset.from_tensor_slices((INPUTS[first:], TARGETS[first:]))
    model.fit(examples.batch(4), verbose=0)
    return float(np.asarray(model.get_weights()[0]).item())


MIRRORED = tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"])
print("the weight after batches of four examples and of three; due is one device's")
for name, module in (("tf_keras", tf_keras), ("Keras 3 ", keras)):
    one = train(module, tf.distribute.get_strategy())
    print(f"  {name}: one device {one}, two replicas {train(module, MIRRORED)}")
print("with three examples in the first batch, on two replicas")
print("  tf_keras:", train(tf_keras, MIRRORED, first=4))
try:
    print("  Keras 3 :", train(keras, MIRRORED, first=4))
except tf.errors.InvalidArgumentError as error:
    print("  Keras 3 :", error.message.partition("} ")[2].partition(". ")[0])
