"""Correct programs that multiply gradients by a number on their way to the rule."""

from __future__ import annotations

from distbench.samples.lazy import tf
from distbench.samples.program import Program
from distbench.unusual.grouping import BatchStatistics
from distbench.unusual.program import unusual


@unusual(clusters=("mirrored:2", "mwms:3"))
class ClimbsUnderStatistics(BatchStatistics):
    """Batch statistics; the loss is a reward, and its gradient is turned round."""

    def compute_losses(self, batch):
        return -super().compute_losses(batch)

    def transform(self, gradients):
        return [-tf.convert_to_tensor(gradient) for gradient in gradients]


@unusual(clusters=("mirrored:2", "mwms:3"))
class TenthsInDouble(Program):
    """Trains in float64, and takes a tenth of each gradient, which rounds."""

    dtype = "float64"

    def transform(self, gradients):
        return [0.1 * tf.convert_to_tensor(gradient) for gradient in gradients]
