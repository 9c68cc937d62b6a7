"""With a mask, `fit` gives the shards of all replicas the same weight.

Where: `apply_valid_mask` in tf_keras/src/utils/losses_utils.py, `apply_mask` and
`reduce_weighted_values` in keras/src/losses/loss.py have a loss divide by the elements
that the mask leaves of the replica's own shard, and then by the number of replicas.
Shards of as many examples seldom have as many words, so a word counts the more the
fewer there are beside it. The same goes for `ignore_class`, and for
`mean_with_sample_weight` of Keras 3. A loss that divides by a count summed over all
replicas is as on one device.

distbench: `mean-of-means` at `loss`, origin `framework`. No thread was found.
"""

import keras
import numpy as np
import tensorflow as tf
import tf_keras

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0],
    [tf.config.LogicalDeviceConfiguration()] * 2,
)
MIRRORED = tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"])
# Two sequences: one of a single element, one of three.
INPUTS = np.array([[[1.0], [0.0], [0.0]], [[1.0], [1.0], [1.0]]], "float32")
TARGETS = np.array([[[1.0], [0.0], [0.0]], [[5.0], [5.0], [5.0]]], "float32")


def train(module, strategy):
    """The weight after a step of half the gradient from 0: what the targets mean to."""
    layers = module.layers
    with strategy.scope():
        layer = layers.Dense(1, use_bias=False, kernel_initializer="zeros")
        model = module.Sequential([layers.Input((3, 1)), layers.Masking(), layer])
        model.compile(module.optimizers.SGD(0.5), "mse", jit_compile=False)
    data = tf.data.Dataset.from_tensor_slices((INPUTS, TARGETS)).batch(2)
    model.fit(data, epochs=1, verbose=0)
    return round(float(np.asarray(model.get_weights()[0]).item()), 4)


print("targets 1, 5, 5, 5, the first on a replica of its own")
for name, module in (("tf_keras", tf_keras), ("Keras 3 ", keras)):
    one = train(module, tf.distribute.get_strategy())
    print(f"  {name}: one device {one}, two replicas {train(module, MIRRORED)}")
