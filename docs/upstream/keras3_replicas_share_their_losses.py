"""Keras 3's replicas share their layers' losses where they wait for each other.

Where: `Layer.add_loss` in keras/src/layers/layer.py appends to a list of the layer, and
`_clear_losses` empties those of all layers when a model is called. MirroredStrategy
runs the replicas in threads, one after the other, each up to where it waits for the
others. Where that is in the forward pass, as in
`BatchNormalization(synchronized=True)`, an `all_reduce` or an `assign` to a variable
with an aggregation, all replicas have cleared and added before the first one reads
`losses`: it then finds those of others, or of none, whose gradients its tape does not
know. tf_keras keeps them by thread. Penalties of weights are computed when asked for,
and come out right.

distbench: `unexplained` at `loss`, origin `framework`, for a model of Keras' own
layers. No thread was found.
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
INPUTS = np.array([[1.0], [2.0], [3.0], [4.0]], "float32")


def train(module, strategy, *, synchronized):
    """The weight after a step from 1 that only the penalty of an activity moves."""
    layers = module.layers
    with strategy.scope():
        model = module.Sequential(
            [
                layers.Input((1,)),
                layers.Dense(
                    1,
                    use_bias=False,
                    kernel_initializer="ones",
                    activity_regularizer=module.regularizers.L2(0.5),
                ),
                layers.BatchNormalization(synchronized=synchronized),
                layers.Dense(1, kernel_initializer="zeros"),
            ]
        )
        model.compile(module.optimizers.SGD(0.125), "mse", jit_compile=False)
    data = tf.data.Dataset.from_tensor_slices((INPUTS, 0 * INPUTS)).batch(4)
    model.fit(data, epochs=1, verbose=0)
    return round(float(np.asarray(model.get_weights()[0]).item()), 4)


for synchronized in (False, True):
    print(f"BatchNormalization(synchronized={synchronized}): one device, two replicas")
    for name, module in (("tf_keras", tf_keras), ("Keras 3 ", keras)):
        one = train(module, tf.distribute.get_strategy(), synchronized=synchronized)
        two = train(module, MIRRORED, synchronized=synchronized)
        print(f"  {name}: {one}, {two}")
