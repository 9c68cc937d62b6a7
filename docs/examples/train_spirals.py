"""A training script as people have it: it tells which spiral a point belongs to.

Start it on every worker with TF_CONFIG set; alone it trains on one device.
"""

import numpy as np
import tensorflow as tf
import tf_keras

ARMS, EXAMPLES, GLOBAL_BATCH = 3, 384, 32


def make_points():
    """Points [n, 2] on three arms, and the arm of each."""
    rng = np.random.default_rng(0)
    arms = rng.integers(ARMS, size=EXAMPLES)
    radius = rng.uniform(0.1, 1.0, size=EXAMPLES)
    angle = 4 * radius + 2 * np.pi * arms / ARMS + rng.normal(0, 0.1, size=EXAMPLES)
    points = radius * np.stack([np.cos(angle), np.sin(angle)])
    return points.T.astype("float32"), arms.astype("int64")


def make_dataset(context):
    """The part of the points that an input pipeline reads."""
    points = tf.data.Dataset.from_tensor_slices(make_points())
    points = points.shard(context.num_input_pipelines, context.input_pipeline_id)
    return points.batch(context.get_per_replica_batch_size(GLOBAL_BATCH))


class Trainer:
    """Model, optimizer and the step of one replica."""

    def __init__(self, strategy):
        with strategy.scope():
            hidden = tf_keras.layers.Dense(32, activation="tanh", input_shape=(2,))
            self.model = tf_keras.Sequential([hidden, tf_keras.layers.Dense(ARMS)])
            self.optimizer = tf_keras.optimizers.legacy.Adam(0.02)

    def train_step(self, batch):
        """Update on the replica's points; returns its share of the loss."""
        points, arms = batch
        with tf.GradientTape() as tape:
            logits = self.model(points, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(arms, logits)
            loss = self.average(losses)
        variables = self.model.trainable_variables
        gradients = tape.gradient(loss, variables)
        self.optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return loss

    def average(self, losses):
        """A replica's share of the mean over the global batch."""
        return tf.nn.compute_average_loss(losses, global_batch_size=GLOBAL_BATCH)


def main(epochs=20):
    """Train; returns the loss of each epoch's last step."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    trainer = Trainer(strategy)
    batches = strategy.distribute_datasets_from_function(make_dataset)

    @tf.function
    def step(batch):
        losses = strategy.run(trainer.train_step, args=(batch,))
        return strategy.reduce("SUM", losses, axis=None)

    history = []
    for _ in range(epochs):
        for batch in batches:
            loss = step(batch)
        history.append(float(loss))
    return history


if __name__ == "__main__":
    print(main())
