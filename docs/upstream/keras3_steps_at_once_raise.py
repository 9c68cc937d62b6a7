"""Keras 3's `steps_per_execution` raises under MirroredStrategy.

Where: `multi_step_on_iterator` in keras/src/backend/tensorflow/trainer.py runs a step
in a `tf.cond` (`has_next`) within a `tf.while_loop`. For a `DistributedIterator` that
makes a graph with a placeholder in it which nobody feeds, and running it fails.
tf_keras has a loop over `range` call the step, without a conditional.

distbench: `raises` at the first step, origin `framework`. No thread was found.
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
INPUTS = np.ones((8, 1), "float32")


def train(module, strategy):
    """What comes of four steps, two at a time."""
    with strategy.scope():
        model = module.Sequential([module.layers.Input((1,)), module.layers.Dense(1)])
        model.compile(
            module.optimizers.SGD(0.5),
            "mse",
            jit_compile=False,
            steps_per_execution=2,
        )
    data = tf.data.Dataset.from_tensor_slices((INPUTS, INPUTS)).batch(2)
    try:
        model.fit(data, verbose=0)
    except tf.errors.InvalidArgumentError as error:
        return error.message.partition("ARGUMENT:")[2].strip()[:48]
    return "trains"


for name, module in (("tf_keras", tf_keras), ("Keras 3 ", keras)):
    one = train(module, tf.distribute.get_strategy())
    print(f"{name}: one device {one}, two replicas {train(module, MIRRORED)}")
