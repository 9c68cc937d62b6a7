"""Under a strategy, Keras 3 keeps BatchNormalization's averages of one replica alone.

Where: `BatchNormalization.build` in
keras/src/layers/normalization/batch_normalization.py makes `moving_mean` and
`moving_variance` without an aggregation, so that `Variable._initialize` in
keras/src/backend/tensorflow/core.py mirrors them with `VariableAggregation.NONE`;
`BatchNormalization.call` assigns them in replica context. Each copy then follows its
own replica's batches, and what is read and saved is the first one. tf_keras makes them
`ON_READ` with a mean, which is what is read and saved there.

distbench: `statistics-not-synchronized` at `variable`, origin `framework`. No thread
on Keras 3 was found.
"""

import keras
import tensorflow as tf
import tf_keras

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0],
    [tf.config.LogicalDeviceConfiguration()] * 2,
)
STRATEGY = tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"])
BATCHES = [[[0.0], [2.0]], [[8.0], [10.0]]]


def run_step(module):
    """A forward pass on each replica: the moving mean as it is read, and the copies."""
    with STRATEGY.scope():
        layer = module.layers.BatchNormalization(momentum=0.0)
        layer.build((None, 1))
    given = STRATEGY.experimental_distribute_values_from_function(
        lambda context: tf.constant(BATCHES[context.replica_id_in_sync_group])
    )

    @tf.function
    def run(batch):
        STRATEGY.run(lambda x: layer(x, training=True), args=(batch,))

    run(given)
    variable = layer.moving_mean
    if isinstance(variable, keras.Variable):
        variable = variable.value
    copies = STRATEGY.experimental_local_results(variable)
    return float(variable.numpy()[0]), [float(copy.numpy()[0]) for copy in copies]


print("batches with the means 1 and 9: moving mean as read, copies of the replicas")
print("  tf_keras:", *run_step(tf_keras))
print("  Keras 3: ", *run_step(keras))
