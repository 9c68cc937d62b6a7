"""Mistakes in losses that are made of slopes by the inputs."""

from __future__ import annotations

from distbench.faults.fault import WIDE, fault
from distbench.samples.lazy import tf
from distbench.unusual.slopes import SlopesOfTheShare


@fault("loss-not-scaled", "loss", like="keras-team/keras#19891", clusters=WIDE)
class SlopesOfTheOwnMean(SlopesOfTheShare):
    """Slopes are those of a mean over the own shard: even ones have N^2 times each."""

    def average(self, scores):
        return tf.reduce_mean(scores)
