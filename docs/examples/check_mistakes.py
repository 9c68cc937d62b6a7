"""The same script with a mistake in it, one at a time."""

import tensorflow as tf
import train_spirals as script
from check_spirals import Spirals


class OwnMean(Spirals):
    """The mean over the own points, which the optimizer adds up over the replicas."""

    class Trainer(script.Trainer):
        def average(self, losses):
            return tf.reduce_mean(losses)


class NotSharded(Spirals):
    """Every worker reads all points."""

    def dataset_fn(self, context):
        points = tf.data.Dataset.from_tensor_slices(script.make_points())
        batch = context.get_per_replica_batch_size(script.GLOBAL_BATCH)
        return points.batch(batch)
