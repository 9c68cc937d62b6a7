"""A correct program that divides its loss by how many examples are positive."""

from __future__ import annotations

from typing import Any

from distbench.samples.lazy import tf
from distbench.samples.program import Program
from distbench.samples.replicas import all_reduce

_LEAST = 1.2
"""The first target of a positive example is larger. Some shards have none."""


class Counted(Program):
    """Divides by the positives of all replicas, or by 1 where there are none."""

    def reduce_losses(self, losses: Any, batch: Any) -> Any:
        """The sum over the shard, over all positives."""
        positive = tf.reduce_sum(tf.cast(batch[2][:, 0] > _LEAST, losses.dtype))
        return tf.reduce_sum(losses) / self.count(positive)

    def count(self, positive: Any) -> Any:
        """What the sum is divided by, given the positives of the shard."""
        return tf.maximum(all_reduce("sum", positive), 1.0)
