"""TensorFlow 1's optimizers update once per replica under CentralStorageStrategy.

Where: `Optimizer.apply_gradients` in tensorflow/python/training/optimizer.py. With
`skip_gradients_aggregation=True`, for gradients that the user has summed, each replica
updates the one variable that all of them share. tf_keras' legacy optimizers refuse the
same flag there.

distbench: `update-repeated` at `variable`, ratio 2, origin `framework`.
"""

import tensorflow as tf

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0],
    [tf.config.LogicalDeviceConfiguration()] * 2,
)
GRADIENTS = [[3.0, 0.0], [0.0, 4.0]]

strategy = tf.distribute.experimental.CentralStorageStrategy(
    ["cpu:0", "cpu:1"], "cpu:0"
)
with strategy.scope():
    variable = tf.Variable([0.0, 0.0])
    optimizer = tf.compat.v1.train.GradientDescentOptimizer(1.0)
given = strategy.experimental_distribute_values_from_function(
    lambda context: tf.constant(GRADIENTS[context.replica_id_in_sync_group])
)


@tf.function
def run(gradients):
    """Sum by hand, then update without a sum."""

    def replica(gradient):
        total = tf.distribute.get_replica_context().all_reduce("sum", gradient)
        optimizer.apply_gradients([(total, variable)], skip_gradients_aggregation=True)

    strategy.run(replica, args=(gradients,))


run(given)
print("due [-3.0, -4.0], got", [float(x) for x in variable.numpy()])
