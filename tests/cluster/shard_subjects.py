"""Programs and optimizers whose variables lie in shards on parameter servers."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
import tf_keras

legacy = tf_keras.optimizers.legacy


class Sharded:
    """A table of embeddings and a layer, in as many shards as the strategy makes."""

    loss_reduction = "sum"
    examples = 16
    kernel_name = None

    def build(self, strategy):
        rng = np.random.default_rng(3)
        self.table = tf.Variable(rng.normal(size=(8, 3)).astype("float32"), name="rows")
        # By default its shards have no names of their own.
        kernel = rng.normal(size=(3, 2)).astype("float32")
        self.kernel = tf.Variable(kernel, name=self.kernel_name)
        self._optimizer = self.make_optimizer()

    def make_optimizer(self):
        return legacy.SGD(0.1)

    def variables(self):
        return [self.table, self.kernel]

    def shards(self):
        found = []
        for variable in self.variables():
            found += getattr(variable, "variables", [variable])
        return found

    def optimizer(self):
        return self._optimizer

    def data(self, step):
        rng = np.random.default_rng(step + 1)
        rows = rng.integers(0, 8, size=(self.examples, 2))
        return rows, rng.normal(size=(self.examples, 2)).astype("float32")

    def replica_step(self, batch):
        rows, targets = batch
        with tf.GradientTape() as tape:
            found = tf.nn.embedding_lookup(self.table, rows)
            outputs = tf.reduce_mean(found, axis=1) @ tf.convert_to_tensor(self.kernel)
            loss = tf.reduce_sum((outputs - targets) ** 2) / self.examples
        gradients = tape.gradient(loss, self.shards())
        self._optimizer.apply_gradients(zip(gradients, self.shards(), strict=True))
        return loss


class WithSlots(Sharded):
    """A rule with slots, of shards that have names."""

    kernel_name = "kernel"

    def make_optimizer(self):
        return legacy.Adam(0.1, global_clipnorm=0.5)


class Scheduled(WithSlots):
    """The loop sets the rate before each step, and rates have no shards."""

    def make_optimizer(self):
        self.rate = tf.Variable(0.1, trainable=False, name="rate")
        return legacy.Adam(self.rate.read_value)

    def variables(self):
        return [*super().variables(), self.rate]

    def shards(self):
        return super().shards()[:-1]

    def before_step(self, step):
        self.rate.assign(0.1 / (1.0 + step))


class WithSlotsUnnamed(WithSlots):
    """The same, and one variable has no name."""

    kernel_name = None


class SlotsMadeBefore(WithSlots):
    """The same, and the slots are there before a checkpoint is restored."""

    def build(self, strategy):
        super().build(strategy)
        self._optimizer._create_all_weights(self.shards())


class Named(WithSlots):
    """No slots, and all shards have names."""

    def make_optimizer(self):
        return legacy.SGD(0.1)


class NamedAsShards(WithSlots):
    """Names of whole variables that look like those of parts."""

    kernel_name = "part_1/kernel"

    def make_optimizer(self):
        self.seen = tf.Variable(tf.zeros([8]), trainable=False, name="part_0_seen")
        return super().make_optimizer()

    def variables(self):
        return [*super().variables(), self.seen]

    def shards(self):
        return super().shards()[: -len(getattr(self.seen, "variables", [0]))]


class SlotsOfKeras2(Sharded):
    """Made in `build`, with the name of their shard at the end."""

    kernel_name = "kernel"

    def build(self, strategy):
        super().build(strategy)
        self._optimizer.build(self.shards())

    def make_optimizer(self):
        return tf_keras.optimizers.Adam(0.1, epsilon=1e-3, jit_compile=False)


class DividedByWorkers(Sharded):
    """The loss is divided by the workers as well, as if they took one step together."""

    def replica_step(self, batch):
        self.examples *= self.count_workers()
        try:
            return super().replica_step(batch)
        finally:
            self.examples //= self.count_workers()

    def count_workers(self):
        extended = tf.distribute.get_strategy().extended
        return getattr(extended, "_num_workers", 1)


class SwapsShards(legacy.SGD):
    """Hands the shards of a variable to each other's servers, where there are any."""

    def apply_gradients(self, grads_and_vars, name=None, **kwargs):
        pairs = list(grads_and_vars)
        if isinstance(
            tf.distribute.get_strategy(), tf.distribute.ParameterServerStrategy
        ):
            (first, one), (second, other), *rest = pairs
            pairs = [(second, one), (first, other), *rest]
        return super().apply_gradients(pairs, name, **kwargs)


def make_swapping():
    return SwapsShards(0.1)


def make_adam():
    return legacy.Adam(0.1)


def make_clipped():
    return legacy.Adam(0.1, global_clipnorm=0.5)


def make_with_norm():
    return legacy.SGD(0.1, clipnorm=0.05)


class ClipsEachShard(legacy.SGD):
    """Clips the norm of what each server holds, where there are any."""

    def apply_gradients(self, grads_and_vars, name=None, **kwargs):
        pairs = list(grads_and_vars)
        if isinstance(
            tf.distribute.get_strategy(), tf.distribute.ParameterServerStrategy
        ):
            clipped = [(tf.clip_by_norm(g, 0.5), v) for g, v in pairs]
        else:
            found, _ = tf.clip_by_global_norm([g for g, _ in pairs], 0.5)
            clipped = [(g, v) for g, (_, v) in zip(found, pairs, strict=True)]
        return super().apply_gradients(clipped, name, **kwargs)


def make_clipping_each():
    return ClipsEachShard(0.1)


class DrawnByLayers(Sharded):
    """A layer of Keras draws its kernel, and draws each shard by itself."""

    def build(self, strategy):
        self.layer = tf_keras.layers.Dense(4)
        self.layer.build((None, 3))
        self._optimizer = self.make_optimizer()

    def variables(self):
        return [self.layer.kernel, self.layer.bias]

    def data(self, step):
        rng = np.random.default_rng(step + 1)
        inputs = rng.normal(size=(self.examples, 3)).astype("float32")
        return inputs, rng.normal(size=(self.examples, 4)).astype("float32")

    def replica_step(self, batch):
        inputs, targets = batch
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((self.layer(inputs) - targets) ** 2) / self.examples
        gradients = tape.gradient(loss, self.shards())
        self._optimizer.apply_gradients(zip(gradients, self.shards(), strict=True))
        return loss
