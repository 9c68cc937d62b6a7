"""Correct programs with the optimizers of TensorFlow 1."""

from __future__ import annotations

from distbench.samples.lazy import tf, v1
from distbench.samples.program import Program
from distbench.samples.replicas import all_reduce
from distbench.unusual.program import unusual


@unusual()
class V1ManyRules(Program):
    """Each variable has another rule; the loss is differentiated by the optimizer."""

    def make_optimizer(self):
        return [
            v1.AdamOptimizer(0.05),
            v1.AdagradOptimizer(0.05),
            v1.RMSPropOptimizer(0.05, momentum=0.9, centered=True),
            v1.FtrlOptimizer(0.05, l1_regularization_strength=0.01),
            v1.AdadeltaOptimizer(0.5),
        ]

    def replica_step(self, batch):
        losses = []
        for optimizer, variable in zip(self._optimizer, self.trained(), strict=True):

            def compute():
                loss = self.reduce_losses(self.compute_losses(batch), batch)
                losses.append(loss)
                return loss

            pairs = optimizer.compute_gradients(compute, [variable])
            optimizer.apply_gradients(pairs)
        return losses[0]


@unusual()
class V1OwnReduction(Program):
    """The user sums, and the optimizer is told to skip it."""

    def make_optimizer(self):
        self.global_step = tf.Variable(
            0,
            name="global_step",
            dtype=tf.int64,
            trainable=False,
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )
        return v1.MomentumOptimizer(0.05, 0.9, use_nesterov=True)

    def apply(self, gradients):
        pairs = list(zip(all_reduce("sum", gradients), self.trained(), strict=True))
        self._optimizer.apply_gradients(pairs, skip_gradients_aggregation=True)
        self.global_step.assign_add(1)


@unusual()
class V1DistributedApply(Program):
    """The user calls what runs across the replicas himself."""

    def make_optimizer(self):
        return v1.AdamOptimizer(0.05)

    def apply(self, gradients):
        pairs = list(zip(gradients, self.trained(), strict=True))
        context = tf.distribute.get_replica_context()
        context.merge_call(self._optimizer._distributed_apply, args=(pairs,))
