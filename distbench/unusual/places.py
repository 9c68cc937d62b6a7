"""Unusual but correct steps that take the examples of a batch by their places."""

from __future__ import annotations

from distbench.samples.lazy import tf
from distbench.samples.program import Program
from distbench.unusual.program import unusual


def take_slice(batch, first, last):
    """The examples of a batch from one place to before another one."""
    return tf.nest.map_structure(lambda a: a[first:last], batch)


@unusual()
class MicroBatches(Program):
    """Three micro-batches, whose lengths differ by one where nothing else adds up."""

    examples = 12
    pieces = 3

    def find_bounds(self, piece, examples):
        """Where a micro-batch begins and ends."""
        return piece * examples // self.pieces, (piece + 1) * examples // self.pieces

    def replica_step(self, batch):
        examples = tf.shape(batch[0])[0]
        sums, total = [tf.zeros_like(v) for v in self.trained()], 0.0
        for piece in range(self.pieces):
            part = take_slice(batch, *self.find_bounds(piece, examples))
            with tf.GradientTape() as tape:
                loss = self.reduce_losses(self.compute_losses(part), part)
            found = tape.gradient(loss, self.trained())
            found = map(tf.convert_to_tensor, found)
            sums = [s + g for s, g in zip(sums, found, strict=True)]
            total += loss
        self.apply(sums)
        return total


@unusual()
class HardestExamples(Program):
    """The hardest half of the own examples counts, whatever their places are."""

    def reduce_losses(self, losses, batch):
        del batch
        hardest, _ = tf.math.top_k(losses, k=tf.shape(losses)[0] // 2)
        return tf.reduce_sum(hardest) / self.examples


@unusual()
class MixedWithReversed(Program):
    """Mixup: each example is mixed with the one as far from the shard's other end."""

    def compute_losses(self, batch):
        words, features, targets = batch
        mixed = [0.7 * a + 0.3 * tf.reverse(a, [0]) for a in (features, targets)]
        return super().compute_losses((words, *mixed))


@unusual()
class MarginOfRightExamples(Program):
    """Some examples have no gradient: their loss is below a margin, in any place."""

    def reduce_losses(self, losses, batch):
        return super().reduce_losses(tf.nn.relu(losses - 1.0), batch)


class TwoDomains(Program):
    """Some examples are of a source and have targets; it is told from the others."""

    def is_source(self, batch):
        """Which examples are of the source: [n]."""
        raise NotImplementedError

    def compute_losses(self, batch):
        source = tf.cast(self.is_source(batch), self.dtype)
        score = tf.reduce_sum(batch[1] @ self.second, axis=1)
        told = tf.nn.softplus((1 - 2 * source) * score)
        return self.take_source(super().compute_losses(batch), source) + told

    def take_source(self, losses, source):
        """The losses that count by their targets."""
        return losses * source


@unusual()
class DomainsByWords(TwoDomains):
    """Each example says by a word whether it is of the source."""

    def is_source(self, batch):
        return batch[0][:, 0] % 2 == 0
