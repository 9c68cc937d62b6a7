"""Subjects for scripts that show findings; nothing here knows of distbench."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
import tf_keras


def make_rate_by_strategy():
    """Twice the learning rate wherever there is a strategy, parameter servers too."""
    rate = 0.25 if tf.distribute.has_strategy() else 0.125
    return tf_keras.optimizers.legacy.SGD(rate, momentum=0.5)


def make_rate():
    """Correct: the same learning rate everywhere."""
    return tf_keras.optimizers.legacy.SGD(0.125, momentum=0.5)


class WeighsExamples:
    """Correct, and the third batch has other examples than those before: 5 for 8."""

    def build(self, strategy):
        del strategy
        self.weights = tf.Variable([1.0, -2.0, 3.0], name="weights")
        self.sgd = make_rate()

    def variables(self):
        return [self.weights]

    def optimizer(self):
        return self.sgd

    def data(self, step):
        examples = 8 if step < 2 else 5
        rng = np.random.default_rng(step)
        return rng.normal(size=(examples, 3)).astype("float32")

    def replica_step(self, batch):
        with tf.GradientTape() as tape:
            losses = tf.linalg.matvec(batch, self.weights) ** 2
            loss = tf.reduce_sum(losses) / self.count(losses)
        gradient = tape.gradient(loss, self.weights)
        self.sgd.apply_gradients([(gradient, self.weights)])
        return loss

    def count(self, losses):
        context = tf.distribute.get_replica_context()
        mine = tf.cast(tf.shape(losses)[0], tf.float32)
        return context.all_reduce(tf.distribute.ReduceOp.SUM, mine)


class WeighsEight(WeighsExamples):
    """Counts right as long as a strategy deals out eight."""

    def count(self, losses):
        return 8.0 if tf.distribute.has_strategy() else super().count(losses)


class _ReadThenAssigned(tf_keras.optimizers.legacy.SGD):
    """Under parameter servers others write between its reading and its writing."""

    def _resource_apply_dense(self, grad, var, apply_state=None):
        value = tf.identity(var)
        served = tf.distribute.ParameterServerStrategy
        if isinstance(tf.distribute.get_strategy(), served):
            with tf.control_dependencies([value]):
                begun = tf.timestamp()
            (now,) = tf.while_loop(
                lambda now: now < begun + 0.05, lambda _: (tf.timestamp(),), (begun,)
            )
            with tf.control_dependencies([now]):
                value = tf.identity(value)
        return var.assign(value - 0.25 * grad)


def make_read_then_assigned():
    """What is read, changed and assigned undoes what others wrote meanwhile."""
    return _ReadThenAssigned(0.25)


def make_in_place():
    """Correct: the variable is changed in place."""
    return tf_keras.optimizers.legacy.SGD(0.25)


class MovesByHand(WeighsExamples):
    """Correct: it lists the momentum that it keeps before what that moves."""

    doubled = 1.0

    def build(self, strategy):
        super().build(strategy)
        self.moved = tf.Variable(tf.zeros(3), trainable=False, name="moved")

    def variables(self):
        return [self.moved, self.weights]

    def optimizer(self):
        return None

    def replica_step(self, batch):
        with tf.GradientTape() as tape:
            losses = tf.linalg.matvec(batch, self.weights) ** 2
            loss = tf.reduce_sum(losses) / self.count(losses)
        context = tf.distribute.get_replica_context()
        gradient = tape.gradient(loss, self.weights)
        total = context.all_reduce(tf.distribute.ReduceOp.SUM, gradient)
        moved = 0.5 * self.moved + total
        self.change(self.weights, self.weights - 0.125 * moved)
        is_alone = not tf.distribute.has_strategy()
        self.change(self.moved, moved if is_alone else self.doubled * moved)
        return loss

    def change(self, variable, value):
        def merge(strategy, value):
            strategy.extended.update(variable, lambda v, n: v.assign(n), (value,))

        tf.distribute.get_replica_context().merge_call(merge, (value,))


class DoublesMomentum(MovesByHand):
    """Wherever there is a strategy, what the next step starts from."""

    doubled = 2.0


class TwoOptimizers(WeighsExamples):
    """Correct: each of two variables has an optimizer."""

    more = 0

    def build(self, strategy):
        super().build(strategy)
        self.offset = tf.Variable(0.5, name="offset")
        self.other = make_rate()

    def variables(self):
        return [self.weights, self.offset]

    def optimizer(self):
        return [self.sgd, self.other]

    def replica_step(self, batch):
        with tf.GradientTape() as tape:
            losses = (tf.linalg.matvec(batch, self.weights) - self.offset) ** 2
            loss = tf.reduce_sum(losses) / self.count(losses)
        weights, offset = tape.gradient(loss, [self.weights, self.offset])
        self.sgd.apply_gradients([(weights, self.weights)])
        self.other.apply_gradients([(offset, self.offset)])
        if tf.distribute.has_strategy() and self.more:
            self.other.iterations.assign_add(self.more)
        return loss


class CountsTwice(TwoOptimizers):
    """Of the second optimizer the counter goes on by two."""

    more = 1
