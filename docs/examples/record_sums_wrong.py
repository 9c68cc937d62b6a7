"""Trains on as many replicas as it is told, and records the first steps.

`python record_sums.py REPLICAS FOLDER`
"""

import sys

import numpy as np
import tensorflow as tf
import tf_keras

import distbench

REPLICAS, FOLDER = int(sys.argv[1]), sys.argv[2]
GLOBAL_BATCH = 8

cpu = tf.config.list_physical_devices("CPU")[0]
devices = [tf.config.LogicalDeviceConfiguration()] * REPLICAS
tf.config.set_logical_device_configuration(cpu, devices)
strategy = tf.distribute.MirroredStrategy([f"CPU:{n}" for n in range(REPLICAS)])

tf_keras.utils.set_random_seed(1)  # both runs start from the same weights
with strategy.scope():
    hidden = tf_keras.layers.Dense(4, activation="tanh", input_shape=(3,))
    model = tf_keras.Sequential([hidden, tf_keras.layers.Dense(1)])
    optimizer = tf_keras.optimizers.legacy.Adam(0.01)

points = np.random.default_rng(0).normal(size=(64, 3)).astype("float32")
examples = (points, points.sum(axis=1, keepdims=True))
dataset = tf.data.Dataset.from_tensor_slices(examples).batch(GLOBAL_BATCH)


def replica_step(batch):
    inputs, targets = batch
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum((model(inputs) - targets) ** 2) / GLOBAL_BATCH
    gradients = tape.gradient(loss, model.trainable_variables)
    context = tf.distribute.get_replica_context()
    gradients = context.all_reduce("MEAN", gradients)
    pairs = zip(gradients, model.trainable_variables, strict=True)
    optimizer.apply_gradients(pairs, experimental_aggregate_gradients=False)
    return loss


@tf.function
def train_step(batch):
    losses = strategy.run(replica_step, args=(batch,))
    return strategy.reduce("SUM", losses, axis=None)


with distbench.record(strategy, optimizer, folder=FOLDER, steps=4) as recorder:
    for batch in strategy.experimental_distribute_dataset(dataset):
        recorder.loss(train_step(batch))
