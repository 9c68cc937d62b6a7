"""A correct program that divides its loss by how many examples are positive."""

from __future__ import annotations

from typing import Any

from distbench.samples.lazy import tf
from distbench.samples.program import Program
from distbench.samples.replicas import all_reduce

_PLACE, _WORD = 1, 0
"""Which word makes an example positive: in the first step the last shard has none."""


class Counted(Program):
    """Divides by the positives of all replicas, or by 1 where there are none."""

    def reduce_losses(self, losses: Any, batch: Any) -> Any:
        """The sum over the shard, over all positives."""
        positive = tf.cast(batch[0][:, _PLACE] == _WORD, losses.dtype)
        return tf.reduce_sum(losses) / self.count(tf.reduce_sum(positive))

    def count(self, positive: Any) -> Any:
        """What the sum is divided by, given the positives of the shard."""
        return tf.maximum(all_reduce("sum", positive), 1.0)
