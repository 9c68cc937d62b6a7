"""Mistakes in moving means of what the model makes of its examples."""

from __future__ import annotations

from distbench.faults.fault import EVERYWHERE, fault
from distbench.samples.lazy import tf
from distbench.unusual.moving_means import MeanMovedSlowly as _MeanMovedSlowly


@fault(
    "statistics-not-synchronized",
    "variable",
    ("mean",),
    like="huggingface/transformers#34191",
    clusters=EVERYWHERE,
)
class MeanMovedByOwnMeans(_MeanMovedSlowly):
    """A mean moves slowly, to the mean of all replicas' own, whatever their sizes."""

    def average(self, outputs):
        return tf.reduce_mean(outputs, axis=0)
