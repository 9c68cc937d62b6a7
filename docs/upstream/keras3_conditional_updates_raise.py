"""Keras 3's accumulation and overwriting averages raise under MirroredStrategy.

Where: `_backend_apply_gradients` in keras/src/optimizers/base_optimizer.py calls
`ops.cond` in replica context with a branch that updates variables, which needs
`merge_call`, and TensorFlow refuses that inside a conditional.
"""

import keras
import tensorflow as tf

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0],
    [tf.config.LogicalDeviceConfiguration()] * 2,
)
STRATEGY = tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"])


def step(**options):
    """One step on two replicas; what came of it."""
    with STRATEGY.scope():
        variable, optimizer = tf.Variable([0.0]), keras.optimizers.SGD(1.0, **options)
        optimizer.build([variable])

    def replica():
        optimizer.apply_gradients([(tf.constant([1.0]), variable)])

    @tf.function
    def run():
        STRATEGY.run(replica)

    try:
        run()
    except RuntimeError as error:
        return type(error).__name__
    return variable.numpy()


print("no option:                     ", step())
print("gradient_accumulation_steps=2: ", step(gradient_accumulation_steps=2))
print("ema_overwrite_frequency=1:     ", step(use_ema=True, ema_overwrite_frequency=1))
