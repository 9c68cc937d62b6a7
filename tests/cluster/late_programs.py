"""Programs that do something in a later step than a check begins with."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf
import tf_keras

from distbench.samples.averaged import Averaged
from distbench.samples.optimizers import Lookahead


class _Slow(Lookahead, tf_keras.optimizers.legacy.Optimizer):
    period = 6


def make_slow():
    """Slow weights that move every sixth step."""
    optimizer = _Slow("Slow")
    optimizer.iterations  # noqa: B018  # is made when it is asked for
    return optimizer


class _Mean(Averaged, tf_keras.optimizers.legacy.Optimizer):
    start = 2


class _MeanByReplicas(_Mean):
    def count_taken(self):
        return super().count_taken() * tf.distribute.get_strategy().num_replicas_in_sync


def make_mean():
    """A mean of the weights that begins in the last step of a check."""
    return _Mean("Mean")


def make_mean_by_replicas():
    """Each of them counts N times, of which the first one, at 0, shows nothing."""
    return _MeanByReplicas("Mean")


class Copied:
    """A target network, to which Python copies the trained one every fifth step."""

    loss_reduction = "sum"
    scale = 1.0

    def build(self, strategy):
        del strategy
        self.weight = tf.Variable([[0.5], [-0.25]], name="weight")
        self.target = tf.Variable([[0.5], [-0.25]], trainable=False, name="target")
        self.sgd = tf_keras.optimizers.legacy.SGD(0.125)

    def variables(self):
        return [self.weight, self.target]

    def optimizer(self):
        return self.sgd

    def before_step(self, step):
        if step % 5 == 4:
            replicas = tf.distribute.get_strategy().num_replicas_in_sync
            self.target.assign(self.weight * self.scale ** (replicas - 1))

    def data(self, step):
        rng = np.random.default_rng(step)
        return rng.integers(-4, 5, (8, 2)).astype("float32")

    def replica_step(self, batch):
        with tf.GradientTape() as tape:
            ahead = tf.matmul(batch, self.target)
            error = tf.matmul(batch, self.weight) - 0.5 * ahead - 1.0
            loss = tf.reduce_sum(error**2) / 8
        gradient = tape.gradient(loss, self.weight)
        self.sgd.apply_gradients([(gradient, self.weight)])
        return loss


class CopiedHalf(Copied):
    """On a cluster half of it for each further replica."""

    scale = 0.5


class CopiedWhileThereIsData(CopiedHalf):
    """It has data for four steps, and so never comes to the fifth."""

    def data(self, step):
        if step > 3:
            raise IndexError(step)
        return super().data(step)


class CopiedInTheLastStepThereIs(CopiedWhileThereIsData):
    """It comes to the first copy, and to nothing that follows."""

    def before_step(self, step):
        super().before_step(step + 1)


class NeverCopied(CopiedHalf):
    """What it writes in some branch stands still in all steps that anybody looks at."""

    def before_step(self, step):
        if step > 1_000:
            super().before_step(step)


class Below(Copied):
    """Its rate changes in a step that is far away, as a comparison turns there."""

    def build(self, strategy):
        super().build(strategy)
        self.sgd.iterations  # noqa: B018  # is made when it is asked for

    def before_step(self, step):
        pass

    def find_share(self, taken):
        return tf.where(tf.less(taken, 40), 1.0, 0.5)

    def replica_step(self, batch):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((tf.matmul(batch, self.weight) - 1.0) ** 2) / 80
        gradient = tape.gradient(loss, self.weight)
        share = self.find_share(self.sgd.iterations)
        self.sgd.apply_gradients([(share * gradient, self.weight)])
        return loss


class Above(Below):
    def find_share(self, taken):
        return tf.where(taken > 40, 0.5, 1.0)


class Countdown(Below):
    def find_share(self, taken):
        return tf.where(40 - taken > 0, 1.0, 0.5)


class Untaken(Below):
    """A comparison in a branch that no step takes, and one of texts."""

    def find_share(self, taken):
        is_late = tf.equal(tf.strings.as_string(taken), "1000")
        far = lambda: tf.where(tf.reduce_sum(self.weight) > 0.1, 1.0, 0.5)  # noqa: E731
        return tf.cond(is_late, far, lambda: tf.where(tf.less(taken, 40), 1.0, 0.5))


class OfKeras(Below):
    def find_share(self, taken):
        return keras.ops.where(keras.ops.less(taken, 40), 1.0, 0.5)


class Once(Below):
    def find_share(self, taken):
        return tf.where(tf.equal(taken, 40), 0.5, 1.0)


class Warm(Below):
    def find_share(self, taken):
        return tf.minimum(tf.cast(taken, tf.float32) / 40.0, 1.0)


class Warming:
    """Halves its steps from the fifth one on, by a condition in an inner function."""

    loss_reduction = "sum"

    def build(self, strategy):
        del strategy
        self.weight = tf.Variable([[0.5], [-0.25]], name="weight")
        self.taken = tf.Variable(0, trainable=False, name="taken")
        self.find_scale = tf.function(self._find_scale)

    def _find_scale(self, taken):
        return tf.where(taken < 4, 1.0, self.find_late_scale())

    def find_late_scale(self):
        return 0.5

    def variables(self):
        return [self.weight, self.taken]

    def optimizer(self):
        return None

    def data(self, step):
        rng = np.random.default_rng(step)
        return rng.integers(-4, 5, (8, 2)).astype("float32")

    def replica_step(self, batch):
        with tf.GradientTape() as tape:
            error = tf.matmul(batch, self.weight) - 1.0
            loss = tf.reduce_sum(error**2) / 8
        context = tf.distribute.get_replica_context()
        total = context.all_reduce("sum", tape.gradient(loss, self.weight))
        self.weight.assign_sub(0.01 * self.find_scale(self.taken) * total)
        self.taken.assign_add(1)
        return loss


class WarmingByReplicas(Warming):
    """From then on each further replica halves them once more."""

    def find_late_scale(self):
        return 0.5 ** tf.distribute.get_strategy().num_replicas_in_sync


class UpdatesInTurn:
    """Of three networks the second one is updated in every other step alone."""

    first_due = 0

    def build(self, strategy):
        self.parts = [tf.Variable([1.0], name=f"part{n}") for n in range(3)]
        self.taken = tf.Variable(0, trainable=False, name="taken")
        self.rules = [tf_keras.optimizers.legacy.SGD(0.1) for _ in range(3)]

    def variables(self):
        return [*self.parts, self.taken]

    def optimizer(self):
        return self.rules

    def data(self, step):
        return np.random.default_rng(step).normal(size=(8, 1)).astype("float32")

    def replica_step(self, batch):
        first, second, third = range(3)
        loss = self.update(first, batch)
        is_due = tf.equal(self.taken % 2, self.first_due)
        loss += tf.cond(is_due, lambda: self.update(second, batch), lambda: 0.0)
        loss += self.update(third, batch)
        self.taken.assign_add(1)
        return loss

    def update(self, number, batch):
        with tf.GradientTape() as tape:
            joint = tf.add_n([part**2 for part in self.parts])
            loss = tf.reduce_sum(joint * batch**2) / 8
        part = self.parts[number]
        self.rules[number].apply_gradients([(tape.gradient(loss, part), part)])
        return loss


class UpdatesInTurnLater(UpdatesInTurn):
    """The same, and the second one begins in the second step."""

    first_due = 1


def positives(true, _):
    """A metric that is 0 as long as no label is set."""
    return true


def data(step):
    """What `fit` takes; the first label is set in the sixth batch."""
    values = np.random.default_rng(step).normal(size=(8, 3)).astype("float32")
    return values, np.full((8, 1), step >= 5, "float32")


def _compile(kind, layers):
    model = kind([layers.Dense(1)])
    model.compile("sgd", "mse", metrics=[positives])
    return model


def make_rarely_set():
    """A compiled model whose metric `fit` begins anew in each step."""
    return _compile(tf_keras.Sequential, tf_keras.layers)


def make_rarely_set_in_keras3():
    """The same in Keras 3."""
    return _compile(keras.Sequential, keras.layers)


class _Kept(tf_keras.Sequential):
    def reset_metrics(self):
        """Count on from epoch to epoch."""


def make_rarely_set_and_kept():
    """A metric that goes on from what the steps before have left."""
    return _compile(_Kept, tf_keras.layers)
