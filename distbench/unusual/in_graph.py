"""Correct steps that differentiate by `tf.gradients`, without a tape."""

from __future__ import annotations

from distbench.samples.lazy import tf
from distbench.samples.program import Program
from distbench.unusual.program import unusual


@unusual()
class DifferentiatedInGraph(Program):
    """Losses of examples, differentiated where they are."""

    def replica_step(self, batch):
        loss = self.reduce_losses(self.compute_losses(batch), batch)
        self.apply(self.transform(tf.gradients(loss, self.trained())))
        return self.report(loss)


@unusual(clusters=("mirrored:2",))
class SlopesPenalisedInGraph(DifferentiatedInGraph):
    """A penalty on how outputs change with features, which is a gradient as well."""

    def compute_losses(self, batch):
        words, features, targets = batch
        outputs = self.predict((words, features))
        [slopes] = tf.gradients(outputs, [features])
        losses = tf.reduce_sum((outputs - targets) ** 2, axis=1)
        return losses + 0.1 * tf.reduce_sum(slopes**2, axis=1)


@unusual(clusters=("mirrored:2",))
class SumClippedInGraph(DifferentiatedInGraph):
    """The sum over the replicas is clipped, element by element."""

    def apply(self, gradients):
        context = tf.distribute.get_replica_context()
        dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
        summed = context.all_reduce(tf.distribute.ReduceOp.SUM, dense)
        clipped = [tf.clip_by_value(g, -0.02, 0.02) for g in summed]
        self._optimizer.apply_gradients(
            zip(clipped, self.trained(), strict=True),
            experimental_aggregate_gradients=False,
        )
