"""Mistakes in programs that hold each example against the next one in the shard."""

from __future__ import annotations

from distbench.faults.fault import WIDE, fault
from distbench.samples.lazy import tf
from distbench.samples.program import OwnMeans
from distbench.unusual.neighbours import SmoothAlongTheShard


@fault("loss-not-scaled", "loss", like="keras-team/keras#20609", clusters=WIDE)
class OwnMeanAlongTheShard(SmoothAlongTheShard):
    """What neighbours add is divided by the own shard's size, as the mean is."""

    def reduce_losses(self, losses, batch):
        scale = self.examples / tf.cast(tf.shape(losses)[0], losses.dtype)
        return scale * super().reduce_losses(losses, batch)


@fault("loss-not-scaled", "loss", like="keras-team/keras#20609", clusters=WIDE)
class OwnMeanBesideNeighbours(OwnMeans, SmoothAlongTheShard):
    """A mean over the own shard, and a share of what neighbours add."""

    def reduce_losses(self, losses, batch):
        mean = super().reduce_losses(losses, batch)
        return mean + self.compare(losses) / self.examples
