"""Programs that take something of the own shard alone, where that may be meant."""

from __future__ import annotations

import tensorflow as tf

from distbench.samples.program import Program
from distbench.samples.replicas import all_reduce


class CountsAllButOne(Program):
    """A sum that is divided by what all count, and one by one more than the own."""

    def reduce_losses(self, losses, batch):
        count = tf.cast(tf.size(losses), tf.float32)
        near = tf.reduce_sum(losses) / all_reduce("sum", count)
        outputs = tf.reduce_sum(self.predict(batch) ** 2)
        return near + outputs / (count + 1.0)
