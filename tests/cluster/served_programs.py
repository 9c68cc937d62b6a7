"""Programs for parameter servers: they count in tables, and ask for their worker."""

from __future__ import annotations

import tensorflow as tf
import tf_keras
from odd_programs import Regression

from distbench.samples.servers import is_served

legacy = tf_keras.optimizers.legacy


class CountsInATable(Regression):
    """Correct with one worker: weighs examples by how often their kind was seen."""

    def build(self, strategy):
        super().build(strategy)
        self._optimizer = legacy.SGD(0.1)
        self.seen = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, 0.0)

    def compute_loss(self, batch):
        features, targets = batch
        kinds = tf.cast(features[:, 0] > 0.0, tf.int64)
        known, _, counts = tf.unique_with_counts(kinds)
        self.seen.insert(known, self.seen.lookup(known) + self.weigh(counts))
        weights = 1.0 / (1.0 + self.seen.lookup(kinds))
        errors = (features @ self.kernel - targets) ** 2
        return tf.reduce_sum(weights[:, None] * errors)

    def weigh(self, counts):
        return tf.cast(counts, tf.float32)


class CountsTwiceInATable(CountsInATable):
    """Under parameter servers each example is counted twice."""

    def weigh(self, counts):
        return super().weigh(counts) * (2.0 if is_served() else 1.0)


class CountsInADenseTable(CountsInATable):
    """Correct with one worker: its keys are strings."""

    def build(self, strategy):
        super().build(strategy)
        self.seen = StringKeys(
            tf.lookup.experimental.DenseHashTable(
                tf.string, tf.float32, 0.0, empty_key="", deleted_key="-"
            )
        )


class StringKeys:
    """A table of numbers as strings."""

    def __init__(self, table):
        self.table = table

    def lookup(self, keys):
        return self.table.lookup(tf.strings.as_string(keys))

    def insert(self, keys, values):
        self.table.insert(tf.strings.as_string(keys), values)


class AsksForItsWorker(Regression):
    """Correct under parameter servers: the step checks who takes it."""

    def compute_loss(self, batch):
        number = tf.distribute.coordinator.experimental_get_current_worker_index()
        with tf.control_dependencies(
            [tf.debugging.assert_less(number, 2 * number + 1)]
        ):
            return super().compute_loss(batch)


class HalvesForTwoWorkers(AsksForItsWorker):
    """Under parameter servers the loss is halved."""

    def compute_loss(self, batch):
        return super().compute_loss(batch) / (2.0 if is_served() else 1.0)
