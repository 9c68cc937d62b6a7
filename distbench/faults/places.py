"""Mistakes that take examples for others, or leave them out, by their places."""

from __future__ import annotations

from distbench.faults.fault import fault
from distbench.samples.lazy import tf
from distbench.samples.program import Program
from distbench.unusual.places import MicroBatches, TwoDomains, take_slice

_LIKE = "NervanaSystems/neon#9"
_HALVES = "tingxueronghua/pytorch-classification-advprop#2"


@fault("examples-missed", "loss", like=_LIKE)
class RemainderOfMicroBatches(MicroBatches):
    """Micro-batches of n // 3 examples leave out what is left over of a shard."""

    def find_bounds(self, piece, examples):
        length = examples // self.pieces
        return piece * length, (piece + 1) * length


@fault("examples-missed", "loss", like=_LIKE)
class LastExampleLost(Program):
    """The last example of every shard is left out, and that of the batch."""

    def compute_losses(self, batch):
        return super().compute_losses(take_slice(batch, 0, -1))


@fault("examples-missed", "loss", like=_LIKE)
class LastExampleLostInMean(LastExampleLost):
    """The same where each replica's mean weighs as much as its examples."""

    def reduce_losses(self, losses, batch):
        mean = tf.reduce_mean(losses)
        examples = tf.cast(tf.shape(batch[0])[0], mean.dtype)
        return mean * examples / self.examples


@fault("examples-missed", "loss", like=_LIKE)
class CapOfExamples(Program):
    """The first five examples of a batch count: every replica has a cap of its own."""

    def compute_losses(self, batch):
        return super().compute_losses(take_slice(batch, 0, 5))


@fault("examples-missed", "loss", like=_LIKE)
class OddExampleLost(Program):
    """Examples are taken in pairs: a shard of an odd number leaves its last one out."""

    examples = 18

    def compute_losses(self, batch):
        pairs = tf.shape(batch[0])[0] // 2
        return super().compute_losses(take_slice(batch, 0, 2 * pairs))


@fault("examples-missed", "loss", like=_HALVES)
class HalvesOfTheShard(TwoDomains):
    """A batch is a source, then a target: replicas cut their shards in the middle."""

    def is_source(self, batch):
        examples = tf.shape(batch[0])[0]
        return tf.range(examples) < examples // 2


@fault("unexplained", "loss", like=_HALVES)
class HalvesOfTheShardTold(HalvesOfTheShard):
    """All examples have targets, and some are taken for those of the other domain."""

    def take_source(self, losses, source):
        del source
        return losses
