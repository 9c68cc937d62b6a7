"""Programs that keep state where no list of variables tells of it."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
import tf_keras

SUM = tf.distribute.ReduceOp.SUM
EXAMPLES = 8
KEPT: dict[str, tf.Variable] = {}


class Patience:
    """Is over where a loss is not the least one yet for the second time."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.waited = 0

    def is_over(self, loss: float) -> bool:
        is_least = loss <= min([*self.losses, loss])
        self.losses.append(loss)
        self.waited = 0 if is_least else self.waited + 1
        if self.waited < 2:
            return False
        self.waited = 0
        return True


class Plateau:
    """Halves its rate where the loss of the global batch has not fallen.

    The losses are kept in Python, by an object that the program has.
    """

    loss_reduction = "sum"

    def build(self, strategy):
        del strategy
        self.weight = tf.Variable([[0.5], [-0.25]], name="weight")
        first = tf.VariableAggregation.ONLY_FIRST_REPLICA
        self.last, self.rate = (
            tf.Variable(value, trainable=False, name=name, aggregation=first)
            for name, value in (("last", 0.0), ("rate", 0.0625))
        )
        self.sgd = tf_keras.optimizers.legacy.SGD(1.0, momentum=0.5)
        self.patience = Patience()

    def variables(self):
        return [self.weight, self.last, self.rate]

    def optimizer(self):
        return self.sgd

    def data(self, step):
        rng = np.random.default_rng(step)
        return rng.normal(size=(EXAMPLES, 2)).astype("float32") * (1 + step)

    def before_step(self, step):
        if step and self.patience.is_over(float(self.last.numpy())):
            self.rate.assign(self.rate * 0.5)

    def replica_step(self, batch):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((batch @ self.weight - 1.0) ** 2) / EXAMPLES
        gradient = tape.gradient(loss, self.weight)
        self.last.assign(self.find_whole(loss))
        self.sgd.apply_gradients([(self.rate * gradient, self.weight)])
        return loss

    def find_whole(self, loss):
        return tf.distribute.get_replica_context().all_reduce(SUM, loss)


class PlateauOfOne(Plateau):
    """It looks at one replica's loss, N times."""

    def find_whole(self, loss):
        return loss * tf.distribute.get_strategy().num_replicas_in_sync


class Centred:
    """Takes a moving mean of all examples from them, which its module has alone."""

    loss_reduction = "sum"

    def build(self, strategy):
        del strategy
        self.weight = tf.Variable([[0.5], [-0.25]], name="weight")
        self.sgd = tf_keras.optimizers.legacy.SGD(0.125)
        KEPT["mean"] = tf.Variable(
            tf.zeros((2,)),
            trainable=False,
            name="mean",
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )

    def variables(self):
        return [self.weight]

    def optimizer(self):
        return self.sgd

    def data(self, step):
        return np.random.default_rng(step).normal(size=(EXAMPLES, 2)).astype("float32")

    def replica_step(self, batch):
        mean = KEPT["mean"]
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(((batch - mean) @ self.weight - 1.0) ** 2) / EXAMPLES
        gradient = tape.gradient(loss, self.weight)
        mean.assign(0.5 * mean + 0.5 * self.find_mean(batch))
        self.sgd.apply_gradients([(gradient, self.weight)])
        return loss

    def find_mean(self, batch):
        total = tf.reduce_sum(batch, axis=0)
        return tf.distribute.get_replica_context().all_reduce(SUM, total) / EXAMPLES


class CentredByOne(Centred):
    """Of one replica's examples."""

    def find_mean(self, batch):
        return tf.reduce_mean(batch, axis=0)


class Drawing(Centred):
    """Correct: the generator of its random numbers is the module's as well."""

    def build(self, strategy):
        super().build(strategy)
        KEPT["chance"] = tf.random.Generator.from_seed(1)

    def replica_step(self, batch):
        KEPT["chance"].normal(())
        return super().replica_step(batch)


class Tabled(Centred):
    """Weighs examples by how often their kind has been seen, which a table tells."""

    def build(self, strategy):
        super().build(strategy)
        self.sgd.iterations  # noqa: B018  # is made when it is asked for
        self.seen = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, 0.0)

    def replica_step(self, batch):
        kinds = tf.cast(batch[:, 0] > 0.0, tf.int64)
        counts = tf.math.bincount(tf.cast(kinds, tf.int32), minlength=2, maxlength=2)
        known = tf.range(2, dtype=tf.int64)
        seen = self.seen.lookup(known) + tf.cast(self.count(counts), tf.float32)
        self.seen.insert(known, seen)
        with tf.GradientTape() as tape:
            errors = (batch @ self.weight - 1.0)[:, 0] ** 2
            loss = self.share(errors / tf.sqrt(tf.gather(seen, kinds)))
        gradient = tape.gradient(loss, self.weight)
        self.sgd.apply_gradients([(gradient, self.weight)])
        return loss

    def count(self, counts):
        return tf.distribute.get_replica_context().all_reduce(SUM, counts)

    def share(self, losses):
        return tf.reduce_sum(losses) / EXAMPLES


class TabledOwnMean(Tabled):
    """Takes the mean over the replica's own examples."""

    def share(self, losses):
        return tf.reduce_mean(losses)


class Levelled(Centred):
    """Divides steps by a moving mean of the sum's norms, which NumPy keeps."""

    def build(self, strategy):
        super().build(strategy)
        self.level = np.ones(1, np.float32)

    def optimizer(self):
        return None

    def replica_step(self, batch):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((batch @ self.weight - 1.0) ** 2) / EXAMPLES
        own = tape.gradient(loss, self.weight)
        total = tf.distribute.get_replica_context().all_reduce(SUM, own)
        norm = tf.norm(self.choose(own, total))
        level = tf.numpy_function(self.follow, [norm], tf.float32)
        self.weight.assign_sub(0.125 * total / tf.reshape(level, []))
        return loss

    def choose(self, own, total):
        del own
        return total

    def follow(self, norm):
        level = self.level[0].copy()
        self.level += (norm - self.level) / 2
        return level


class LevelledByOwn(Levelled):
    """By norms of the own gradients."""

    def choose(self, own, total):
        del total
        return own
