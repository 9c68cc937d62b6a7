"""Under a strategy, each replica scales Keras 3's float8 by its own examples alone.

Where: `Dense._float8_call` in keras/src/layers/core/dense.py (`EinsumDense` as well)
hands over the next scales and the next history of largest values as gradients, and
`_overwrite_variables_directly_with_gradients` in keras/src/optimizers/base_optimizer.py
assigns them in replica context, each replica its own, before any sum. So the copies
drift apart: replicas round the same number to other ones, what is clipped on one is not
on another, and what is read and saved is the first copy. One device has the largest of
the whole batch.

distbench: `statistics-not-synchronized` at `variable`, origin `framework`. No thread
was found.
"""

import keras
import numpy as np
import tensorflow as tf

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0],
    [tf.config.LogicalDeviceConfiguration()] * 2,
)
MIRRORED = tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"])
INPUTS = np.array([[1.0], [2.0], [30.0], [40.0]], "float32")


def train(strategy):
    """The largest inputs and the scales that the copies have after two steps."""
    with strategy.scope():
        layer = keras.layers.Dense(1, dtype="float8_from_float32")
        model = keras.Sequential([keras.layers.Input((1,)), layer])
        model.compile(keras.optimizers.SGD(0.0), "mse", jit_compile=False)
    data = tf.data.Dataset.from_tensor_slices((INPUTS, INPUTS)).batch(4).repeat(2)
    model.fit(data, epochs=1, verbose=0)
    kept = layer.inputs_amax_history, layer.inputs_scale
    return [
        [
            round(float(np.max(copy)), 4)
            for copy in strategy.experimental_local_results(v)
        ]
        for v in (variable.value for variable in kept)
    ]


print("batch: 1, 2, 30, 40; largest inputs, and scales of the copies")
print("  one device:  ", *train(tf.distribute.get_strategy()))
print("  two replicas:", *train(MIRRORED))
