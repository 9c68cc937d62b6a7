"""Train programs whose variables have an unusual shape or dtype."""

from __future__ import annotations

import tensorflow as tf
from odd_programs import Regression


class LeavesShapesOpen(Regression):
    """Correct: the shapes of its buffers are open, and what they hold keeps its own."""

    def build(self, strategy):
        super().build(strategy)
        start, rows = tf.zeros([3, 2]), tf.TensorShape([None, 2])
        self.open = tf.Variable(start, shape=rows, trainable=False, name="open")
        anything = tf.TensorShape(None)
        self.any = tf.Variable(start, shape=anything, trainable=False, name="any")

    def variables(self):
        return [self.kernel, self.open, self.any]

    def replica_step(self, batch):
        loss = super().replica_step(batch)
        self.open.assign(self.open + 1.0)
        return loss


class OpenOfReplicas(LeavesShapesOpen):
    """Wrong: the buffer depends on how many replicas there are."""

    def replica_step(self, batch):
        count = tf.distribute.get_strategy().num_replicas_in_sync
        loss = super().replica_step(batch)
        self.open.assign(self.open * float(count))
        return loss


class Grows(LeavesShapesOpen):
    """Its buffer has a row more in each step."""

    def replica_step(self, batch):
        loss = super().replica_step(batch)
        self.open.assign(tf.concat([self.open, tf.zeros([1, 2])], 0))
        return loss


class KeepsText(Regression):
    """A variable that holds no number."""

    def build(self, strategy):
        super().build(strategy)
        self.text = tf.Variable("so far", trainable=False, name="text")

    def variables(self):
        return [self.kernel, self.text]


class IsComplex(Regression):
    """Its kernel is complex."""

    def build(self, strategy):
        super().build(strategy)
        self.kernel = tf.Variable(tf.cast(self.kernel, tf.complex64), name="w")
