"""Keras 3 clips each replica's gradients, and then adds up what it clipped.

Where: `BaseOptimizer.apply` in keras/src/optimizers/base_optimizer.py clips;
`TFOptimizer._backend_update_step` in keras/src/backend/tensorflow/optimizer.py sums
later. The clips of tf_keras, legacy and new, come after the sum.

distbench: `clip-before-reduction` at `reduced_gradient`, origin `framework`.
"""

import keras
import tensorflow as tf
import tf_keras

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0],
    [tf.config.LogicalDeviceConfiguration()] * 2,
)
STRATEGY = tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"])
GRADIENTS = [[3.0, 0.0], [0.0, 4.0]]


def step(module, option):
    """One step of descent with rate 1 from 0: the negative of what was applied."""
    with STRATEGY.scope():
        variable = tf.Variable([0.0, 0.0])
        optimizer = module.optimizers.SGD(1.0, **{option: 1.0})
        optimizer.build([variable])
    given = STRATEGY.experimental_distribute_values_from_function(
        lambda context: tf.constant(GRADIENTS[context.replica_id_in_sync_group])
    )

    def replica(gradient):
        optimizer.apply_gradients([(gradient, variable)])

    @tf.function
    def run(gradients):
        STRATEGY.run(replica, args=(gradients,))

    run(given)
    return [round(float(x), 4) for x in variable.numpy()]


for option in ("clipnorm", "global_clipnorm"):
    print(f"{option}=1, due [-0.6, -0.8]")
    print("  tf_keras:", step(tf_keras, option))
    print("  Keras 3: ", step(keras, option))
