"""Subjects with one planted mistake each, beside the correct ones.

Loaded by the tasks from this file; nothing here knows of distbench.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf
import tf_keras

legacy = tf_keras.optimizers.legacy


class Program:
    """A correct train program: momentum SGD on a small regression."""

    loss_reduction = "sum"
    examples = 16

    def build(self, strategy):
        rng = np.random.default_rng(0)
        kernel = rng.normal(size=(4, 3)).astype("float32")
        self.kernel = tf.Variable(kernel, name="dense/kernel")
        self.bias = tf.Variable(np.zeros(3, "float32"), name="dense/bias")
        self._optimizer = self.make_optimizer()

    def make_optimizer(self):
        return legacy.SGD(0.1, momentum=0.9)

    def variables(self):
        return [self.kernel, self.bias]

    def optimizer(self):
        return self._optimizer

    def data(self, step):
        rng = np.random.default_rng(step + 1)
        features = rng.normal(size=(self.examples, 4)).astype("float32")
        return features, rng.normal(size=(self.examples, 3)).astype("float32")

    def reduce_loss(self, losses):
        return tf.reduce_sum(losses) / self.examples

    def replica_step(self, batch):
        features, targets = batch
        with tf.GradientTape() as tape:
            outputs = features @ self.kernel + self.bias
            loss = self.reduce_loss(tf.reduce_sum((outputs - targets) ** 2, axis=1))
        gradients = tape.gradient(loss, self.variables())
        self.apply(gradients)
        return loss

    def apply(self, gradients):
        self._optimizer.apply_gradients(zip(gradients, self.variables(), strict=True))


class LossNotDividedByGlobalBatch(Program):
    """The documented mistake: a mean over the replica's own batch."""

    def reduce_loss(self, losses):
        return tf.reduce_mean(losses)


class MeanOfMeans(Program):
    """A mean over the replica's own batch, divided by the number of replicas."""

    def reduce_loss(self, losses):
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        return tf.reduce_mean(losses) / replicas


class OwnReduction(Program):
    """Correct: the user sums, the optimizer does not."""

    def apply(self, gradients):
        context = tf.distribute.get_replica_context()
        gradients = context.all_reduce("sum", gradients)
        self._optimizer.apply_gradients(
            zip(gradients, self.variables(), strict=True),
            experimental_aggregate_gradients=False,
        )


class NobodyReduces(Program):
    def apply(self, gradients):
        self._optimizer.apply_gradients(
            zip(gradients, self.variables(), strict=True),
            experimental_aggregate_gradients=False,
        )


class ReducedTwice(Program):
    def apply(self, gradients):
        context = tf.distribute.get_replica_context()
        gradients = context.all_reduce("sum", gradients)
        self._optimizer.apply_gradients(zip(gradients, self.variables(), strict=True))


class ClippedBeforeReduction(Program):
    def apply(self, gradients):
        gradients = [tf.clip_by_norm(gradient, 0.05) for gradient in gradients]
        self._optimizer.apply_gradients(zip(gradients, self.variables(), strict=True))


class NoOptimizer(Program):
    """Correct: reduces and updates by hand."""

    def optimizer(self):
        return None

    def apply(self, gradients):
        context = tf.distribute.get_replica_context()
        for gradient, variable in zip(gradients, self.variables(), strict=True):
            total = context.all_reduce("sum", gradient)
            context.merge_call(_subtract, args=(variable, 0.1 * total))


def _subtract(strategy, variable, change):
    strategy.extended.update(variable, lambda v, c: v.assign_sub(c), args=(change,))


class LocalMeanUnderMeanAggregator(Program):
    """Correct though unusual: N times the loss, then a mean over the replicas."""

    loss_reduction = "mean"

    def make_optimizer(self):
        return legacy.SGD(0.1, momentum=0.9, gradient_aggregator=_average)

    def reduce_loss(self, losses):
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        return tf.reduce_sum(losses) / self.examples * replicas


class NoLoss(Program):
    def replica_step(self, batch):
        super().replica_step(batch)


class TakesPartsApart(Program):
    def replica_step(self, features, labels):
        return super().replica_step((features, labels))


class OptimizerByName(Program):
    def optimizer(self):
        return "sgd"


class OptimizerNotMade(Program):
    def optimizer(self):
        return [tf_keras.optimizers.SGD]


class RaisesOnSecondReplica(Program):
    def replica_step(self, batch):
        context = tf.distribute.get_replica_context()
        if tf.get_static_value(context.replica_id_in_sync_group) == 1:
            raise KeyError("no slot on this replica")
        return super().replica_step(batch)


class GivesUp(Program):
    """Raises in its third step, on several replicas alone."""

    def before_step(self, step):
        if step == 2 and tf.distribute.get_strategy().num_replicas_in_sync > 1:
            raise ArithmeticError("weights are too large")


class GivesUpOnWrongLosses(GivesUp, LossNotDividedByGlobalBatch):
    """Does so after steps that are wrong."""


class LeavesOnTwoReplicas(Program):
    def replica_step(self, batch):
        if tf.distribute.get_strategy().num_replicas_in_sync > 1:
            raise SystemExit("enough of this")
        return super().replica_step(batch)


class FailsWhenItRuns(Program):
    def replica_step(self, batch):
        loss = super().replica_step(batch)
        if tf.distribute.get_strategy().num_replicas_in_sync > 1:
            tf.debugging.assert_greater(loss, loss + 1.0, message="it never is")
        return loss


class RaisesEverywhere(Program):
    def replica_step(self, batch):
        raise ValueError("broken from the start")


class TooFewExamples(Program):
    examples = 1


def _average(pairs):
    pairs = list(pairs)
    means = tf.distribute.get_replica_context().all_reduce(
        "mean", [g for g, _ in pairs]
    )
    return list(zip(means, [v for _, v in pairs], strict=True))


def make_sgd():
    return legacy.SGD(0.125)


def make_adam():
    return legacy.Adam(0.1)


def make_keras2_sgd():
    return tf_keras.optimizers.SGD(0.125, jit_compile=False)


def make_keras3_applied_again():
    """Keras 3's count races; that some steps are applied once more does not."""
    import keras

    from distbench.samples.servers import OwnNumber, is_served

    class AppliedAgain(keras.optimizers.SGD):
        def apply(self, grads, trainable_variables=None):
            done = super().apply(grads, trainable_variables)
            if is_served():
                again = tf.equal(OwnNumber("applied_again").add(1) % 3, 0)
                for gradient, variable in zip(
                    grads, self._trainable_variables, strict=True
                ):
                    change = 0.125 * tf.cast(again, tf.float32) * gradient
                    variable.assign_sub(change)
            return done

    return AppliedAgain(0.125)


def make_identity_aggregator():
    return legacy.SGD(0.125, momentum=0.5, gradient_aggregator=lambda pairs: pairs)


def make_mean_aggregator():
    return legacy.SGD(0.125, gradient_aggregator=_average)


def make_no_optimizer():
    return "adam"


def make_nothing():
    legacy.SGD(0.1)


def make_with_rate(rate):
    return legacy.SGD(rate)


class Plain:
    """Nothing that a train program has."""


class WithLists(Program):
    def data(self, step):
        return [[0.0, 1.0], [2.0, 3.0]]


def make_program():
    return Program()


def make_model_without_data():
    return tf_keras.Sequential([tf_keras.layers.Dense(1, input_shape=(2,))])


def make_model_with_dataset():
    return make_model_without_data()


class Batches:
    """Looks like a dataset, and starts no op where the module is read."""

    def as_numpy_iterator(self):
        raise AssertionError("the model cannot be trained on it")


make_model_with_dataset.data = Batches()


class WithoutVariables(Program):
    variables = None


class LacksMemory(Program):
    """On the cluster alone, as under a limit that its tasks reach together."""

    def replica_step(self, batch):
        if tf.distribute.get_strategy().num_replicas_in_sync > 1:
            raise MemoryError("no room for an array")
        return super().replica_step(batch)


class VariableNames(Program):
    def variables(self):
        return [variable.name for variable in super().variables()]


class VariablesAsProperty(Program):
    @property
    def variables(self):
        return [self.made_in_build]


class WithoutStep(Program):
    replica_step = None


class WithDataset(Program):
    def data(self, step):
        return tf.data.Dataset.from_tensor_slices(super().data(step))


class WithArgument(Program):
    def __init__(self, path):
        self.path = path


made_optimizer = legacy.SGD(0.125)


class SlotFromLocalGradient(legacy.Optimizer):
    """Momentum whose slot is fed with the gradient from before the reduction."""

    def __init__(self, learning_rate=0.125, momentum=0.5, name="Momentum", **kwargs):
        super().__init__(name, **kwargs)
        self._set_hyper("learning_rate", learning_rate)
        self._set_hyper("momentum", momentum)
        self._local = {}

    def _create_slots(self, var_list):
        for variable in var_list:
            self.add_slot(variable, "m")

    def _aggregate_gradients(self, grads_and_vars):
        pairs = list(grads_and_vars)
        context = tf.distribute.get_replica_context()
        replica = int(tf.get_static_value(context.replica_id_in_sync_group) or 0)
        for gradient, variable in pairs:
            self._local[replica, variable.name] = gradient
        return super()._aggregate_gradients(pairs)

    def _resource_apply_dense(self, grad, handle, apply_state=None):
        m = self.get_slot(handle, "m")
        name = handle.name.split("/replica")[0].split(":")[0] + ":0"
        local = next(g for (_, n), g in self._local.items() if n == name)
        momentum = self._get_hyper("momentum", handle.dtype)
        rate = self._get_hyper("learning_rate", handle.dtype)
        m_new = m.assign(momentum * m + local)
        return handle.assign_sub(rate * (m_new - local + grad))

    def get_config(self):
        return super().get_config()


def make_slot_from_local_gradient():
    return SlotFromLocalGradient()
