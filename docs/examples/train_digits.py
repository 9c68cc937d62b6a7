"""Trains a small network on handwritten digits; the number of replicas is given."""

import sys

import larc
import sklearn.datasets
import tensorflow as tf
import tf_keras

REPLICAS = int(sys.argv[1])
GLOBAL_BATCH = 64

cpu = tf.config.list_physical_devices("CPU")[0]
parts = [tf.config.LogicalDeviceConfiguration()] * REPLICAS
tf.config.set_logical_device_configuration(cpu, parts)
strategy = tf.distribute.MirroredStrategy([f"CPU:{n}" for n in range(REPLICAS)])

images, labels = sklearn.datasets.load_digits(return_X_y=True)
examples = ((images / 16).astype("float32"), labels)
dataset = tf.data.Dataset.from_tensor_slices(examples)
dataset = dataset.batch(GLOBAL_BATCH, drop_remainder=True)
dataset = strategy.experimental_distribute_dataset(dataset)

tf_keras.utils.set_random_seed(1)
with strategy.scope():
    hidden = tf_keras.layers.Dense(32, activation="tanh", input_shape=(64,))
    model = tf_keras.Sequential([hidden, tf_keras.layers.Dense(10)])
    optimizer = larc.make_larc()


def replica_step(batch):
    inputs, targets = batch
    with tf.GradientTape() as tape:
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(targets, model(inputs))
        loss = tf.nn.compute_average_loss(losses, global_batch_size=GLOBAL_BATCH)
    variables = model.trainable_variables
    gradients = tape.gradient(loss, variables)
    optimizer.apply_gradients(zip(gradients, variables, strict=True))
    return loss


@tf.function
def train_step(batch):
    losses = strategy.run(replica_step, args=(batch,))
    return strategy.reduce("SUM", losses, axis=None)


for epoch in range(4):
    total = sum(float(train_step(batch)) for batch in dataset)
    print(f"epoch {epoch}: loss {total / (len(images) // GLOBAL_BATCH):.4f}")
