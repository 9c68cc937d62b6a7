"""Under Keras 3's loss scale the first replica alone decides whether a step is skipped.

Where: `LossScaleOptimizer._tf_apply` in keras/src/optimizers/loss_scale_optimizer.py
takes `finite` of the first replica; its comment says that gradients have been summed
by then, which they have not. So an Inf on another replica reaches every variable. On
several workers one of them may apply what the others skip, and they wait for ever.

distbench: `nonfinite` at `slot` or `variable` in one process, `collective-mismatch` on
several workers, origin `framework`.
"""

import keras
import numpy as np
import tensorflow as tf
import tf_keras

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0],
    [tf.config.LogicalDeviceConfiguration()] * 2,
)
STRATEGY = tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"])


def step(make, gradients):
    """One step from 0, with a loss scale of 1; a skipped one leaves 0."""
    with STRATEGY.scope():
        variable, optimizer = tf.Variable([0.0, 0.0]), make()
        optimizer.build([variable])
    given = STRATEGY.experimental_distribute_values_from_function(
        lambda context: tf.constant(gradients[context.replica_id_in_sync_group])
    )

    def replica(gradient):
        optimizer.apply_gradients([(gradient, variable)])

    @tf.function
    def run(gradients):
        STRATEGY.run(replica, args=(gradients,))

    run(given)
    return [float(x) for x in variable.numpy()]


def make_keras2():
    """That of tf_keras."""
    return tf_keras.mixed_precision.LossScaleOptimizer(
        tf_keras.optimizers.SGD(1.0), initial_scale=1.0
    )


def make_keras3():
    """That of Keras 3."""
    return keras.optimizers.LossScaleOptimizer(
        keras.optimizers.SGD(1.0), initial_scale=1.0
    )


for replica, gradients in (
    (0, [[np.inf, 0.0], [3.0, 4.0]]),
    (1, [[3.0, 0.0], [np.inf, 4.0]]),
):
    print(f"Inf on replica {replica}, due [0.0, 0.0]")
    print("  tf_keras:", step(make_keras2, gradients))
    print("  Keras 3: ", step(make_keras3, gradients))
