"""Train programs with optimizers of TensorFlow 1, each with one feature of theirs.

Correct ones first; those below them have one mistake each.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1.train


def count_replicas():
    return tf.distribute.get_strategy().num_replicas_in_sync


def sum_over_replicas(gradients):
    return tf.distribute.get_replica_context().all_reduce("sum", gradients)


class Regression:
    """A table of embeddings whose rows are shared and repeated, and a kernel."""

    examples = 12
    loss_reduction = "sum"
    passes_counter = True

    def build(self, strategy):
        del strategy
        rng = np.random.default_rng(3)
        table = rng.normal(size=(5, 4)).astype("float32")
        kernel = rng.normal(size=(4, 3)).astype("float32")
        self.table = tf.Variable(table, name="table")
        self.kernel = tf.Variable(kernel, name="kernel")
        self.counter = tf.Variable(
            0,
            name="global_step",
            dtype=tf.int64,
            trainable=False,
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )
        self.made = self.make_optimizer()

    def make_optimizer(self):
        return v1.AdamOptimizer(0.05, use_locking=True)

    def trained(self):
        return [self.table, self.kernel]

    def variables(self):
        return self.trained()

    def optimizer(self):
        return self.made

    def data(self, step):
        rng = np.random.default_rng(step + 50)
        words = rng.integers(0, 4, size=(self.examples, 2))
        return words, rng.normal(size=(self.examples, 3)).astype("float32")

    def compute_losses(self, batch):
        words, targets = batch
        embedded = tf.reduce_sum(tf.nn.embedding_lookup(self.table, words), axis=1)
        return tf.reduce_sum((embedded @ self.kernel - targets) ** 2, axis=1)

    def compute_loss(self, batch):
        return tf.reduce_sum(self.compute_losses(batch)) / self.examples

    def replica_step(self, batch):
        with tf.GradientTape() as tape:
            loss = self.compute_loss(batch)
        self.apply(tape.gradient(loss, self.trained()))
        return loss

    def pair(self, gradients):
        return list(zip(gradients, self.trained(), strict=True))

    def apply(self, gradients, **options):
        counter = self.counter if self.passes_counter else None
        self.made.apply_gradients(self.pair(gradients), global_step=counter, **options)


class NoCounter(Regression):
    """No `global_step` is given: none is counted."""

    passes_counter = False


class ComputesGradients(Regression):
    """The optimizer differentiates a callable; it never scales the loss."""

    gate = v1.Optimizer.GATE_OP

    def replica_step(self, batch):
        losses = []

        def compute():
            losses.append(self.compute_loss(batch))
            return losses[-1]

        pairs = self.made.compute_gradients(
            compute, self.trained(), gate_gradients=self.gate
        )
        self.made.apply_gradients(pairs, global_step=self.counter)
        return losses[-1]


class TellsMean(ComputesGradients):
    """`tf.compat.v1.losses` says that its mean is one; still nothing is scaled."""

    gate = v1.Optimizer.GATE_NONE

    def compute_loss(self, batch):
        # Tells the graph that its last reduction was a mean.
        tf.compat.v1.losses.compute_weighted_loss(tf.ones([2]))
        return super().compute_loss(batch)


class DifferentiatesTensor(ComputesGradients):
    """The optimizer differentiates a tensor of the graph, all gates closed."""

    gate = v1.Optimizer.GATE_GRAPH

    def replica_step(self, batch):
        loss = self.compute_loss(batch)
        pairs = self.made.compute_gradients(
            loss, self.trained(), gate_gradients=self.gate
        )
        self.made.apply_gradients(pairs, global_step=self.counter)
        return loss


class Minimizes(Regression):
    def replica_step(self, batch):
        loss = self.compute_loss(batch)
        self.made.minimize(
            lambda: self.compute_loss(batch),
            global_step=self.counter,
            var_list=self.trained(),
        )
        return loss


class SkipsAggregation(Regression):
    """The user sums, and the counter is the user's as well."""

    passes_counter = False

    def make_optimizer(self):
        return v1.MomentumOptimizer(0.05, 0.9)

    def apply(self, gradients):
        gradients = sum_over_replicas(gradients)
        super().apply(gradients, skip_gradients_aggregation=True)


class DistributedApply(Regression):
    """The user calls what runs across the replicas."""

    def apply(self, gradients):
        tf.distribute.get_replica_context().merge_call(
            self.made._distributed_apply, args=(self.pair(gradients), self.counter)
        )


class OwnRule(v1.Optimizer):
    """Adagrad with a rate that decays by a power kept in no slot.

    Its rules are written for variables of both kinds; TensorFlow 2 has one of them.
    """

    rate = 0.1
    decay = 0.9

    def __init__(self):
        super().__init__(use_locking=False, name="Own")

    def _create_slots(self, var_list):
        first = min(var_list, key=lambda v: v.name)
        self._create_non_slot_variable(1.0, "power", first)
        for variable in var_list:
            self._zeros_slot(variable, "squares", self._name)

    def _get_power(self):
        return self._get_non_slot_variable("power", graph=None)

    def _prepare(self):
        self._rate_now = self.rate * self._get_power()

    def _finish(self, update_ops, name_scope):
        with tf.control_dependencies(update_ops):
            power = self._get_power()
            changed = power.assign(power * self.decay)
        return tf.group(*update_ops, changed, name=name_scope)

    def _apply_dense(self, grad, var):
        raise AssertionError(f"{var} with gradient {grad} is of TensorFlow 1")

    def _apply_sparse(self, grad, var):
        raise AssertionError(f"{var} with gradient {grad} is of TensorFlow 1")

    def _resource_apply_dense(self, grad, handle):
        squares = self.get_slot(handle, "squares")
        squares.assign_add(grad**2)
        change = self._rate_now * grad / (tf.sqrt(squares) + 0.1)
        return handle.assign_sub(change)

    def _resource_apply_sparse(self, grad, handle, indices):
        """Repeated rows come added up: a square would miss what they share."""
        squares = self.get_slot(handle, "squares")
        squares.scatter_add(tf.IndexedSlices(grad**2, indices))
        root = tf.sqrt(tf.gather(squares, indices)) + 0.1
        change = self._rate_now * grad / root
        return handle.scatter_sub(tf.IndexedSlices(change, indices))


class WithOwnRule(Regression):
    def make_optimizer(self):
        return OwnRule()


# --- mistakes -----------------------------------------------------------------------


class MeanOverOwnBatch(ComputesGradients):
    """Nothing scales the loss: the mean must be over the global batch."""

    def compute_loss(self, batch):
        return tf.reduce_mean(self.compute_losses(batch))


class ScaledForEstimator(TellsMean):
    """A strategy in the mode of estimators scales a mean; this one is no local mean."""

    def build(self, strategy):
        super().build(strategy)
        strategy._scale_loss_for_estimator = True


class NobodySums(SkipsAggregation):
    def apply(self, gradients):
        Regression.apply(self, gradients, skip_gradients_aggregation=True)


class SumsTwice(DistributedApply):
    """What runs across the replicas sums by itself."""

    def apply(self, gradients):
        super().apply(sum_over_replicas(gradients))


class CountsReplicas(Regression):
    """Every replica counts, and a counter that sums adds them up."""

    passes_counter = False

    def build(self, strategy):
        super().build(strategy)
        self.steps = tf.Variable(
            0,
            name="steps",
            dtype=tf.int64,
            trainable=False,
            aggregation=tf.VariableAggregation.SUM,
        )

    def apply(self, gradients):
        super().apply(gradients)
        self.steps.assign_add(tf.ones([], tf.int64))

    def variables(self):
        return [*super().variables(), self.steps]


class FinishOfReplicas(OwnRule):
    """The power is multiplied once for each replica."""

    def _finish(self, update_ops, name_scope):
        for _ in range(count_replicas()):
            op = super()._finish(update_ops, name_scope)
        return op


class FinishesForReplicas(Regression):
    def make_optimizer(self):
        return FinishOfReplicas()


class RowsNotAddedUp(OwnRule):
    """Repeated rows reach a rule that takes each for a gradient of its own."""

    def _resource_apply_sparse_duplicate_indices(self, grad, handle, indices):
        return self._resource_apply_sparse(grad, handle, indices)


class LeavesRowsApart(Regression):
    def make_optimizer(self):
        return RowsNotAddedUp()
