"""Correct programs of which later steps have nothing but rounding left to learn."""

from __future__ import annotations

import numpy as np

from distbench.samples.lazy import legacy, tf
from distbench.samples.program import Program
from distbench.unusual.program import unusual

_EPOCH = 6
"""Steps."""


@unusual(clusters=("mirrored:3", "mwms:2"))
class FitsExactly(Program):
    """A regression without noise, on features that do not depend on each other.

    It counts epochs, so the steps that are taken go on to where it has converged.
    """

    examples = 16

    def make_optimizer(self):
        self.weights = tf.Variable(tf.zeros([4]), name="weights")
        self.epoch = tf.Variable(
            0,
            name="epoch",
            trainable=False,
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
            dtype=tf.int64,
        )
        return legacy.SGD(0.4)

    def trained(self):
        return [self.weights]

    def variables(self):
        return [self.weights, self.epoch]

    def data(self, step):
        rows = np.arange(self.examples)[:, None] >> np.arange(4) & 1
        features = np.random.default_rng(step).permutation(1.0 - 2 * rows)
        targets = features @ [0.3, -0.7, 0.9, 0.55]
        return features.astype(self.dtype), targets.astype(self.dtype)

    def compute_losses(self, batch):
        return (tf.linalg.matvec(batch[0], self.weights) - batch[1]) ** 2

    def apply(self, gradients):
        super().apply(gradients)
        self.epoch.assign(self.optimizer().iterations // _EPOCH)
