"""Programs that take something of the own shard alone, where that may be meant."""

from __future__ import annotations

import tensorflow as tf

from distbench.samples.program import Program
from distbench.samples.replicas import all_reduce


class CentresOnItsOwn(Program):
    """All count for both terms; one is made about the mean of the own examples."""

    def reduce_losses(self, losses, batch):
        count = all_reduce("sum", tf.cast(tf.size(losses), tf.float32))
        near = tf.reduce_sum(losses) / count
        outputs = self.predict(batch)
        centred = outputs - tf.reduce_mean(outputs)
        return near + tf.reduce_sum(centred**2) / count
