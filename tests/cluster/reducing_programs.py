"""One line fitted by steps that reduce gradients once, or again."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
import tf_keras


def add_up(value):
    return tf.distribute.get_replica_context().all_reduce("sum", value)


class ByOptimizer:
    """The optimizer sums."""

    def build(self, strategy):
        self.kernel = tf.Variable(tf.ones([3, 1]), name="kernel")
        self.bias = tf.Variable(0.0, name="bias")
        self.sgd = tf_keras.optimizers.SGD(0.1)
        self.sgd.build(self.variables())

    def replica_step(self, x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(x @ self.kernel + self.bias)) / 8
        self.update(tape.gradient(loss, self.variables()))
        return loss

    def update(self, gradients):
        self.sgd.apply_gradients(zip(gradients, self.variables(), strict=True))

    def move(self, gradients):
        for variable, gradient in zip(self.variables(), gradients, strict=True):
            variable.assign_sub(0.1 * gradient)

    def variables(self):
        return [self.kernel, self.bias]

    def optimizer(self):
        return self.sgd

    def data(self, step):
        return np.random.default_rng(step).normal(size=(8, 3)).astype("float32")


class OneByOne(ByOptimizer):
    """A call for each gradient, all of which were there before."""

    def update(self, gradients):
        self.move([add_up(gradient) for gradient in gradients])


class Twice(ByOptimizer):
    """What was summed goes to the optimizer, which sums."""

    def update(self, gradients):
        super().update(add_up(list(gradients)))


class WithANorm(ByOptimizer):
    """The squares of the sum are added up."""

    def update(self, gradients):
        sums = add_up(list(gradients))
        squares = add_up(tf.add_n([tf.reduce_sum(part**2) for part in sums]))
        self.move(tf.clip_by_global_norm(sums, 1.0, use_norm=tf.sqrt(squares))[0])


class KeptBetween(ByOptimizer):
    """What was summed is kept in a variable, which is summed."""

    def update(self, gradients):
        self.kernel.assign(add_up(gradients[0]))
        self.bias.assign(add_up(tf.reduce_sum(self.kernel)))
