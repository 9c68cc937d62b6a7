"""Correct losses whose gradient is made of signs."""

from __future__ import annotations

import numpy as np

from distbench.samples.lazy import tf
from distbench.samples.program import OUTPUTS, Program
from distbench.unusual.program import unusual


@unusual()
class AsManyAboveAsBelow(Program):
    """Half of the targets are far above: all that is left of signs is rounding."""

    examples = 12

    def make_optimizer(self):
        self.shift = tf.Variable(tf.zeros([OUTPUTS]), name="shift")
        return super().make_optimizer()

    def trained(self):
        return [*super().trained(), self.shift]

    def compute_losses(self, batch):
        errors = self.predict(batch) + self.shift - batch[-1]
        return tf.reduce_mean(tf.abs(errors), axis=1)

    def data(self, step):
        words, features, targets = super().data(step)
        far = np.where(np.arange(self.examples) < self.examples // 2, 50, -50)
        return words, features, (targets + far[:, None]).astype(targets.dtype)


@unusual()
class RealLessFake(AsManyAboveAsBelow):
    """A critic scores both in one batch: of its shift nothing is left in any shard."""

    def compute_losses(self, batch):
        words, features, _ = batch
        both = tf.concat([words, words], 0), tf.concat([features, -features], 0)
        scores = tf.reduce_mean(self.predict(both) + self.shift, axis=1)
        real, fake = tf.split(scores, 2)
        return fake - real
