"""Unusual but correct steps: each example is held against the next one in its shard."""

from __future__ import annotations

from distbench.samples.lazy import tf
from distbench.samples.program import Program
from distbench.unusual.program import unusual


@unusual()
class SmoothAlongTheShard(Program):
    """A term for how far each example's loss lies from that of the next one."""

    def reduce_losses(self, losses, batch):
        del batch
        return (tf.reduce_sum(losses) + self.compare(losses)) / self.examples

    def compare(self, losses):
        """A sum over all pairs of neighbours."""
        return tf.reduce_sum((losses[1:] - losses[:-1]) ** 2)


@unusual()
class MultipliedAlongTheShard(SmoothAlongTheShard):
    """The same, of products: an example has one with itself as well."""

    def compare(self, losses):
        return 0.1 * tf.reduce_sum(losses[1:] * losses[:-1])
