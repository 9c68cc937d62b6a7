"""Train programs with checkpoints of their own; tests check them by their targets."""

from __future__ import annotations

import keras
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


class AverageForgotten(Saved):
    """The checkpoint lacks a variable of the program, which starts as it was made."""

    def build(self, strategy):
        super().build(strategy)
        self.average = tf.Variable(self.kernel, trainable=False, name="average")

    def variables(self):
        return [self.kernel, self.average]

    def replica_step(self, batch):
        loss = super().replica_step(batch)
        self.average.assign(0.9 * self.average + 0.1 * self.kernel)
        return loss

    def checkpoint(self):
        return tf.train.Checkpoint(model=self.kernel, optimizer=self.adam)


class SlotsMadeTooLate(Saved):
    """Slots are listed for the checkpoint, which is empty before the first step."""

    def checkpoint(self):
        return tf.train.Checkpoint(
            model=self.kernel,
            counter=self.adam.iterations,
            slots=list(self.adam.variables()[1:]),
        )


class Halved:
    """Two variables; the rate is a variable that the loop halves in its last step."""

    def build(self, strategy):
        del strategy
        rng = np.random.default_rng(0)
        values = {"kernel": rng.normal(size=(4, 2)), "bias": np.zeros(2)}
        self.trained = [
            tf.Variable(value.astype("float32"), name=f"dense/{name}")
            for name, value in values.items()
        ]
        self.made = self.make_optimizer()

    def make_optimizer(self):
        return tf_keras.optimizers.legacy.Adam(0.1)

    def variables(self):
        return self.trained

    def optimizer(self):
        return self.made

    def data(self, step):
        rng = np.random.default_rng(step)
        x = rng.normal(size=(8, 4)).astype("float32")
        return x, rng.normal(size=(8, 2)).astype("float32")

    def before_step(self, step):
        if step == 2:
            rate = self.made.learning_rate
            rate.assign(rate * 0.5)

    def replica_step(self, batch):
        x, y = batch
        kernel, bias = self.trained
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((x @ kernel + bias - y) ** 2) / 8
        gradients = tape.gradient(loss, self.trained)
        self.made.apply_gradients(zip(gradients, self.trained, strict=True))
        return loss


class HalvedKeras2(Halved):
    def make_optimizer(self):
        return tf_keras.optimizers.Adam(0.1)


class HalvedKeras3(Halved):
    def make_optimizer(self):
        made = keras.optimizers.Adam(0.1)
        made.build(self.trained)
        return made


class RateForgotten(Halved):
    """The checkpoint holds slots and counter, and a rate that starts over."""

    def checkpoint(self):
        adam = self.made
        adam._create_all_weights(self.trained)
        kept = [adam.iterations, *self.trained]
        kept += [adam.get_slot(v, name) for v in self.trained for name in ("m", "v")]
        return tf.train.Checkpoint(kept=kept)


class PartlyBuilt(Saved):
    """Of two variables one has its slots before the restore, the other one not yet."""

    def build(self, strategy):
        super().build(strategy)
        self.bias = tf.Variable(tf.zeros(2), name="dense/bias")
        self.prepare()

    def prepare(self):
        self.adam._create_all_weights([self.kernel])

    def variables(self):
        return [self.kernel, self.bias]

    def checkpoint(self):
        return tf.train.Checkpoint(
            model=self.variables(), optimizer=self.adam, counter=self.count_steps()
        )

    def count_steps(self):
        return self.adam.iterations

    def replica_step(self, batch):
        x, y = batch
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((x @ self.kernel + self.bias - y) ** 2) / 8
        gradients = tape.gradient(loss, self.variables())
        self.apply(list(zip(gradients, self.variables(), strict=True)))
        return loss

    def apply(self, pairs):
        self.adam.apply_gradients(pairs)


class PartlyBuiltV1(PartlyBuilt):
    """The same with TensorFlow 1's Adam, whose powers belong to no variable."""

    def prepare(self):
        self.adam = tf.compat.v1.train.AdamOptimizer(0.1)
        self.counter = tf.Variable(
            0,
            dtype=tf.int64,
            name="global_step",
            trainable=False,
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )
        self.adam._create_slots([self.kernel])

    def count_steps(self):
        return self.counter

    def apply(self, pairs):
        self.adam.apply_gradients(pairs, global_step=self.counter)


class SavesKernelSlots(PartlyBuilt):
    """The checkpoint lists the slots that there are: those of one variable."""

    def checkpoint(self):
        slots = [self.adam.get_slot(self.kernel, name) for name in ("m", "v")]
        return tf.train.Checkpoint(
            model=self.variables(), slots=slots, counter=self.count_steps()
        )
