"""Train programs with checkpoints of their own; tests check them by their targets."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
import tf_keras


class Saved:
    """Adam with a schedule, on a small regression; saved by the bench."""

    def build(self, strategy):
        del strategy
        start = np.random.default_rng(0).normal(size=(4, 2)).astype("float32")
        self.kernel = tf.Variable(start, name="dense/kernel")
        rate = tf_keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)
        self.adam = tf_keras.optimizers.legacy.Adam(rate)

    def variables(self):
        return [self.kernel]

    def optimizer(self):
        return self.adam

    def data(self, step):
        rng = np.random.default_rng(step)
        x = rng.normal(size=(8, 4)).astype("float32")
        return x, rng.normal(size=(8, 2)).astype("float32")

    def replica_step(self, batch):
        x, y = batch
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((x @ self.kernel - y) ** 2) / 8
        gradient = tape.gradient(loss, self.kernel)
        self.adam.apply_gradients([(gradient, self.kernel)])
        return loss


class SavedByItself(Saved):
    """The same with a checkpoint of its own, which holds everything."""

    def checkpoint(self):
        return tf.train.Checkpoint(model=self.kernel, optimizer=self.adam)


class OptimizerForgotten(Saved):
    """The checkpoint holds the model alone."""

    def checkpoint(self):
        return tf.train.Checkpoint(model=self.kernel)


class CounterForgotten(Saved):
    """The checkpoint holds the slots, and a schedule that starts over."""

    def checkpoint(self):
        slots = self.adam.variables()[1:]
        return tf.train.Checkpoint(model=self.kernel, slots=list(slots))


class SlotsMadeTooLate(Saved):
    """Slots are listed for the checkpoint, which is empty before the first step."""

    def checkpoint(self):
        return tf.train.Checkpoint(
            model=self.kernel,
            counter=self.adam.iterations,
            slots=list(self.adam.variables()[1:]),
        )
