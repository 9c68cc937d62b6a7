"""Ways through `minimize` of a legacy optimizer, and its three steps apart."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tf_keras
from regression import Regression, all_reduce


class FunctionOfTheLoss(Regression):
    """The loss and the list of variables are functions."""

    def replica_step(self, batch: Any) -> Any:
        losses = []

        def compute() -> Any:
            losses.append(self.compute_loss(batch))
            return losses[-1]

        self._optimizer.minimize(compute, self.variables)
        return losses[-1]


class TapeOfTheLoss(Regression):
    """The loss is a tensor, and the tape that saw it is handed over."""

    def replica_step(self, batch: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = self.compute_loss(batch)
        self._optimizer.minimize(loss, self.variables(), tape=tape)
        return loss


class ThreeSteps(Regression):
    """Compute, process what is summed, apply: the parts of `minimize` by themselves."""

    def replica_step(self, batch: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = self.compute_loss(batch)
        optimizer = self._optimizer
        pairs = optimizer._compute_gradients(loss, self.variables(), tape=tape)
        optimizer.apply_gradients(
            self.process(pairs), experimental_aggregate_gradients=False
        )
        return loss

    def process(self, pairs: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        return clip(all_reduce("sum", pairs))


class ProcessedTooEarly(ThreeSteps):
    """The gradients are clipped on each replica, and summed then."""

    def process(self, pairs: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        return all_reduce("sum", clip(pairs))


class SummingSGD(tf_keras.optimizers.legacy.SGD):
    """Sums in the first of the three steps, as an optimizer for another library."""

    def _compute_gradients(self, *args: Any, **options: Any) -> list[tuple[Any, Any]]:
        return all_reduce("sum", super()._compute_gradients(*args, **options))


class SummedBeforeMinimizeSums(TapeOfTheLoss):
    """`minimize` has no flag that would keep its last step from summing again."""

    def make_optimizer(self) -> Any:
        return SummingSGD(0.05, momentum=0.9)


class LossSummedInTheTape(FunctionOfTheLoss):
    """The loss is summed over the replicas before it is differentiated.

    The gradient of a sum over replicas is a sum over replicas.
    """

    def compute_loss(self, batch: Any) -> Any:
        loss = super().compute_loss(batch)
        return tf.distribute.get_replica_context().all_reduce("sum", loss)


def clip(pairs: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    gradients, variables = zip(*pairs, strict=True)
    clipped, _ = tf.clip_by_global_norm(gradients, 0.5)
    return list(zip(clipped, variables, strict=True))
