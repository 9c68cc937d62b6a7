"""Stock optimizers of the newer families.

Loaded by the tasks from this file; nothing here knows of distbench.
"""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf
import tf_keras


def make_keras2_adam():
    return tf_keras.optimizers.Adam(0.1)


def make_keras2_sgd():
    return tf_keras.optimizers.SGD(0.125)


def make_keras3_adam():
    return keras.optimizers.Adam(0.1)


def make_keras3_sgd():
    return keras.optimizers.SGD(0.125)


def make_keras3_clipped():
    return keras.optimizers.Adam(0.1, global_clipnorm=0.1)


def make_keras3_average():
    return keras.optimizers.Adam(0.1, use_ema=True)


def make_v1_adam():
    return tf.compat.v1.train.AdamOptimizer(0.1)


def make_v1_sgd():
    return tf.compat.v1.train.GradientDescentOptimizer(0.125)


def make_legacy_scaled():
    inner = tf_keras.optimizers.legacy.Adam(0.1)
    return tf_keras.mixed_precision.LossScaleOptimizer(inner)


def make_keras2_scaled():
    inner = tf_keras.optimizers.Adam(0.1)
    return tf_keras.mixed_precision.LossScaleOptimizer(inner)


def make_keras3_scaled():
    return keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.1))


def make_keras3_scaled_sgd():
    return keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.125))


def make_keras2_nadam():
    return tf_keras.optimizers.Nadam()


def make_keras3_muon():
    return keras.optimizers.Muon(0.125, weight_decay=0.5)


class Centred(keras.optimizers.SGD):
    """Half of each gradient's mean is taken off, by all elements of a sparse one."""

    def update_step(self, gradient, variable, learning_rate):
        centred = gradient - keras.ops.mean(gradient) * 0.5
        super().update_step(centred, variable, learning_rate)


def make_keras3_centred():
    return Centred(0.05, momentum=0.9)


class DoubledOnCluster(tf_keras.optimizers.Nadam):
    """Wrong beside what its base class does wrong."""

    def update_step(self, gradient, variable):
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        super().update_step(gradient * min(2.0, float(replicas)), variable)


def make_doubled_nadam():
    return DoubledOnCluster(0.1)


class OwnSchedule(tf_keras.optimizers.schedules.LearningRateSchedule):
    """A schedule that Keras does not know, and cannot make again."""

    def __call__(self, step):
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        return 0.05 * replicas / (1.0 + tf.cast(step, tf.float32))

    def get_config(self):
        return {}


def make_adam_with_own_schedule():
    return tf_keras.optimizers.legacy.Adam(OwnSchedule())


class OtherNames(keras.optimizers.SGD):
    """Takes one argument more than its base class, and names the others anew."""

    def apply(self, gradients, variables=None, share=1.0):
        super().apply([share * g for g in gradients], variables)


class GivesArgumentsByName:
    """Correct: one optimizer of each family, and no argument in its place."""

    examples = 8

    def build(self, strategy):
        start = np.random.default_rng(0).normal(size=(4, 2)).astype("float32")
        names = ("old", "new", "first", "third")
        self._kernels = [tf.Variable(start, name=name) for name in names]
        self._optimizers = [
            tf_keras.optimizers.legacy.SGD(0.1, momentum=0.5),
            tf_keras.optimizers.SGD(0.1, momentum=0.5),
            tf.compat.v1.train.MomentumOptimizer(0.1, 0.5),
            OtherNames(0.1, momentum=0.5),
        ]
        self._optimizers[3].build(self._kernels[3:])

    def variables(self):
        return self._kernels

    def optimizer(self):
        return self._optimizers

    def data(self, step):
        rng = np.random.default_rng(step)
        return [rng.normal(size=(8, n)).astype("float32") for n in (4, 2)]

    def replica_step(self, batch):
        features, targets = batch
        with tf.GradientTape() as tape:
            errors = [features @ kernel - targets for kernel in self._kernels]
            loss = sum(tf.reduce_sum(error**2) for error in errors) / self.examples
        gradients = tape.gradient(loss, self._kernels)
        pairs = [[pair] for pair in zip(gradients, self._kernels, strict=True)]
        old, new, first, third = self._optimizers
        old.apply_gradients(grads_and_vars=pairs[0])
        summed = new.aggregate_gradients(grads_and_vars=pairs[1])
        new.apply_gradients(grads_and_vars=summed, skip_gradients_aggregation=True)
        first.apply_gradients(grads_and_vars=pairs[2])
        third.apply(variables=self._kernels[3:], gradients=gradients[3:], share=0.5)
        return loss


class UpdatesLessOften(GivesArgumentsByName):
    """Two updates in each step, and in every second one a third, on a condition."""

    def build(self, strategy):
        super().build(strategy)
        self._count = tf.Variable(0, trainable=False, name="count")
        del self._kernels[2:], self._optimizers[2:]

    def variables(self):
        return [*self._kernels, self._count]

    def replica_step(self, batch):
        self.update(0, batch)
        loss = self.update(0, batch)
        is_due = self._count % 2 == 0
        tf.cond(is_due, lambda: self.update(1, batch), lambda: loss)
        self._count.assign_add(1)
        return loss

    def update(self, place, batch):
        features, targets = batch
        kernel, optimizer = self._kernels[place], self._optimizers[place]
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((features @ kernel - targets) ** 2) / self.examples
        optimizer.apply_gradients([(tape.gradient(loss, kernel), kernel)])
        return loss


class _BaseOptimizer(tf_keras.optimizers.SGD):
    """Correct: a base class of the user's own, called as tf_keras' private one."""


class Descent(_BaseOptimizer):
    """Correct: what a user makes of it."""


def make_own_base():
    return Descent(0.1)


class MadeOfText(keras.optimizers.SGD):
    """Correct: it keeps a name where wrappers keep another optimizer."""

    def __init__(self):
        super().__init__(0.1)
        self.inner_optimizer = "sgd"


def make_of_text():
    return MadeOfText()
