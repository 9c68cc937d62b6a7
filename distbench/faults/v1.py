"""Mistakes with the optimizers of TensorFlow 1."""

from __future__ import annotations

from distbench.faults.fault import WIDE, fault
from distbench.samples.lazy import tf, v1
from distbench.samples.optimizers import v1_optimizer
from distbench.samples.program import TRAINED
from distbench.samples.program import Program as LegacyProgram
from distbench.samples.replicas import (
    all_reduce,
    count_replicas,
    find_copy,
    find_replica,
)


class Program(LegacyProgram):
    """The program for planted faults, with TensorFlow 1's optimizer and step."""

    def make_optimizer(self):
        self.global_step = tf.Variable(
            0,
            name="global_step",
            dtype=tf.int64,
            trainable=False,
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )
        return v1.MomentumOptimizer(0.05, 0.9)

    def apply(self, gradients):
        self.update(gradients)

    def update(self, gradients, **options):
        """Hand the gradients over, with the counter."""
        self._optimizer.apply_gradients(
            list(zip(gradients, self.trained(), strict=True)),
            global_step=self.global_step,
            **options,
        )


@fault(
    "missing-reduction",
    "reduced_gradient",
    TRAINED,
    like="keras-team/keras#19308",
    clusters=WIDE,
)
class V1NobodySums(Program):
    """The optimizer is told to skip the aggregation, and nobody else does it."""

    def apply(self, gradients):
        self.update(gradients, skip_gradients_aggregation=True)


@fault(
    "missing-reduction",
    "reduced_gradient",
    TRAINED,
    like="keras-team/keras#19308",
    clusters=("central:2",),
)
class V1NobodySumsUnderScheduleOfLoop(V1NobodySums):
    """Nobody sums, all take turns on what they share, and the loop sets the rate."""

    def make_optimizer(self):
        super().make_optimizer()
        self.rate = tf.Variable(0.05, trainable=False, name="rate")
        return v1.MomentumOptimizer(self.rate.read_value, 0.9)

    def variables(self):
        return [*super().variables(), self.rate]

    def before_step(self, step):
        self.rate.assign(0.1 / (2.0 + step))


@fault(
    "double-reduction",
    "reduced_gradient",
    TRAINED,
    like="tensorflow/recommenders-addons#183",
    clusters=WIDE,
)
class V1SummedByBoth(Program):
    """The user sums, and so does the optimizer."""

    def apply(self, gradients):
        super().apply(all_reduce("sum", gradients))


@fault("loss-not-scaled", "loss", like="tensorflow/tensorflow#55321")
class V1MeanOverOwnBatch(Program):
    """The loss is a mean over the replica's examples."""

    def reduce_losses(self, losses, batch):
        return tf.reduce_mean(losses)


@fault(
    "iterations-wrong",
    "iterations",
    ("global_step",),
    like="horovod/horovod#2715",
)
class V1GlobalStepOfReplicas(Program):
    """The user counts the other replicas' steps too."""

    def apply(self, gradients):
        super().apply(gradients)
        self.global_step.assign_add(count_replicas() - 1)


@fault(
    "slot-from-local-gradient",
    "slot",
    tuple(f"{name}/m" for name in ("table", "kernel", "bias")),
    like="keras-team/keras#20541",
    workload="embedding",
)
@v1_optimizer("Optimizer", use_locking=False, name="m")
class V1MomentumOfOwnGradient:
    """Momentum is fed with the replica's own gradient."""

    rate = 0.1
    beta = 0.9

    def apply_gradients(self, grads_and_vars, *args, **kwargs):
        pairs = list(grads_and_vars)
        self._own = getattr(self, "_own", {})
        for gradient, variable in pairs:
            key = find_replica(), variable.name
            self._own[key] = tf.convert_to_tensor(gradient)
        return super().apply_gradients(pairs, *args, **kwargs)

    def _create_slots(self, var_list):
        for variable in var_list:
            self._zeros_slot(variable, "m", self._name)

    def _resource_apply_dense(self, grad, handle):
        slot = self.get_slot(handle, "m")
        name = handle.name.replace(f"/replica_{find_copy(handle)}", "")
        own = self._own[find_copy(handle), name]
        slot.assign(self.beta * slot + own)
        return handle.assign_sub(self.rate * (slot - own + grad))

    def _resource_apply_sparse(self, grad, handle, indices):
        rows = tf.expand_dims(tf.cast(indices, tf.int64), 1)
        dense = tf.scatter_nd(rows, grad, tf.shape(handle, tf.int64))
        return self._resource_apply_dense(dense, handle)


@fault(
    "hyperparameter-differs",
    "variable",
    TRAINED,
    like="sql-machine-learning/elasticdl#89",
    clusters=WIDE,
)
class V1AdamTimesReplicas(Program):
    """The learning rate of an optimizer without variables for it is multiplied by N."""

    def make_optimizer(self):
        super().make_optimizer()
        return v1.AdamOptimizer(0.05 * count_replicas())
