"""Optimizers that limit gradients which are larger than those of a workload."""

from __future__ import annotations

import tensorflow as tf
import tf_keras

_LIMIT = 10.0


class _ClipsFirst(tf_keras.optimizers.legacy.SGD):
    def apply_gradients(self, grads_and_vars, name=None, **options):
        gradients, variables = zip(*grads_and_vars, strict=True)
        clipped, _ = tf.clip_by_global_norm(gradients, _LIMIT)
        pairs = zip(clipped, variables, strict=True)
        return super().apply_gradients(pairs, name, **options)


class _SumsFirst(tf_keras.optimizers.legacy.SGD):
    def apply_gradients(self, grads_and_vars, name=None, **options):
        options["experimental_aggregate_gradients"] = False
        gradients, variables = zip(*grads_and_vars, strict=True)
        context = tf.distribute.get_replica_context()
        total = context.all_reduce("SUM", list(gradients))
        clipped, _ = tf.clip_by_global_norm(total, _LIMIT)
        pairs = zip(clipped, variables, strict=True)
        return super().apply_gradients(pairs, name, **options)


class _AsksForANorm(tf_keras.optimizers.legacy.SGD):
    """Its base reduces the gradients; of all replicas' it wants to know one number."""

    def apply_gradients(self, grads_and_vars, name=None, **options):
        pairs = list(grads_and_vars)
        size = tf.add_n([tf.reduce_sum(gradient**2) for gradient, _ in pairs])
        context = tf.distribute.get_replica_context()
        self.size = context.all_reduce("SUM", tf.stop_gradient(size))
        return super().apply_gradients(pairs, name, **options)


def make_asks_for_a_norm():
    return _AsksForANorm(0.01)


def make_clips_first():
    return _ClipsFirst(0.01)


def make_sums_first():
    return _SumsFirst(0.01)


class ClipsFirst:
    """A program with data of its own."""

    loss_reduction = "sum"

    def build(self, strategy):
        del strategy
        self.weight = tf.Variable([[0.5], [-0.25]], name="weight")
        self.sgd = self.make_optimizer()

    def make_optimizer(self):
        return _ClipsFirst(0.125)

    def variables(self):
        return [self.weight]

    def optimizer(self):
        return self.sgd

    def data(self, step):
        return tf.random.stateless_uniform((8, 2), (1, step), -1.0, 1.0).numpy()

    def replica_step(self, batch):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((tf.matmul(batch, self.weight) - 1.0) ** 2) / 8
        gradient = tape.gradient(loss, self.weight)
        self.sgd.apply_gradients([(gradient, self.weight)])
        return loss


class ClipsFirstBehindATanh(ClipsFirst):
    """Larger numbers in a batch make its gradients smaller."""

    def replica_step(self, batch):
        with tf.GradientTape() as tape:
            outputs = tf.tanh(tf.matmul(batch, self.weight))
            loss = tf.reduce_sum((outputs - 1.0) ** 2) / 8
        gradient = tape.gradient(loss, self.weight)
        self.sgd.apply_gradients([(gradient, self.weight)])
        return loss


class ClipsSumOfMicroStepsFirst(ClipsFirst):
    """No tape gives the whole of a replica's gradient."""

    def replica_step(self, batch):
        total, losses = tf.zeros([2, 1]), 0.0
        for examples in tf.split(batch, [1, -1]):
            with tf.GradientTape() as tape:
                outputs = tf.tanh(tf.matmul(examples, self.weight))
                loss = tf.reduce_sum((outputs - 1.0) ** 2) / 8
            total += tape.gradient(loss, self.weight)
            losses += loss
        self.sgd.apply_gradients([(total, self.weight)])
        return losses


class ClipsSmallMicroStepsFirst(ClipsSumOfMicroStepsFirst):
    """A clip that every gradient of the run needs, and which shows by itself."""

    def make_optimizer(self):
        return _ClipsSmall(0.125)


class _ClipsSmall(tf_keras.optimizers.legacy.SGD):
    def apply_gradients(self, grads_and_vars, name=None, **options):
        [(gradient, variable)] = grads_and_vars
        clipped = tf.clip_by_norm(gradient, 1e-3)
        return super().apply_gradients([(clipped, variable)], name, **options)
