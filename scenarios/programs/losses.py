"""Reductions of Keras' losses in a loop of one's own.

The mean squared error takes the mean over the outputs of an example by itself.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tf_keras
from regression import Regression, count_replicas

Reduction = tf_keras.losses.Reduction


class KerasLoss(Regression):
    """A loss object reduces over the examples."""

    reduction = Reduction.SUM

    def build(self, strategy: Any) -> None:
        super().build(strategy)
        self.loss = tf_keras.losses.MeanSquaredError(reduction=self.reduction)

    def compute_loss(self, batch: Any) -> Any:
        words, targets = batch
        return self.reduce(self.loss(targets, self.predict(words)))

    def reduce(self, losses: Any) -> Any:
        """The replica's share of what the loss object returned."""
        return losses / self.examples


class SumOverGlobalBatch(KerasLoss):
    """SUM, divided by the global batch size."""


class SumOverOwnBatch(KerasLoss):
    """SUM, divided by the replica's own batch size."""

    def compute_loss(self, batch: Any) -> Any:
        own = tf.cast(tf.shape(batch[1])[0], tf.float32)
        return super().compute_loss(batch) * self.examples / own


class Unreduced(KerasLoss):
    """NONE, averaged over the global batch by TensorFlow."""

    reduction = Reduction.NONE

    def reduce(self, losses: Any) -> Any:
        return tf.nn.compute_average_loss(losses, global_batch_size=self.examples)


class MeanOfOwnBatch(Unreduced):
    """NONE, averaged over the replica's own batch."""

    def reduce(self, losses: Any) -> Any:
        return tf.reduce_mean(losses)


class GlobalBatchGuessed(Unreduced):
    """TensorFlow takes the global batch to be N times the replica's own."""

    def reduce(self, losses: Any) -> Any:
        return tf.nn.compute_average_loss(losses)


class Automatic(KerasLoss):
    """AUTO, the default."""

    reduction = Reduction.AUTO

    def reduce(self, losses: Any) -> Any:
        return losses / count_replicas()


class OverBatchSize(Automatic):
    """SUM_OVER_BATCH_SIZE, which AUTO would be."""

    reduction = Reduction.SUM_OVER_BATCH_SIZE
