"""Mistakes in programs of which later steps have nothing but rounding left to learn."""

from __future__ import annotations

from distbench.faults.fault import fault
from distbench.samples.lazy import tf
from distbench.unusual.converging import FitsExactly


@fault(
    "loss-not-scaled",
    "local_gradient",
    ("weights",),
    like="keras-team/keras#19891",
    clusters=("mirrored:3", "mwms:2"),
)
class FitsOwnMeansExactly(FitsExactly):
    """A mean over the own examples is minimised, and the share of all is told."""

    def replica_step(self, batch):
        with tf.GradientTape() as tape:
            losses = self.compute_losses(batch)
            own = tf.reduce_mean(losses)
        self.apply(tape.gradient(own, self.trained()))
        return self.reduce_losses(losses, batch)
