"""Correct steps in which each replica probes by numbers that it draws by its own.

Sums over independent probes are as right as those over one for all, and no single
device has the same.
"""

from __future__ import annotations

from distbench.samples.lazy import legacy, tf
from distbench.samples.program import AdamByHand, MomentumByHand, OwnReduction, Program
from distbench.samples.replicas import find_replica
from distbench.unusual.curvature import DividedByCurvature
from distbench.unusual.program import unusual


class OwnProbes(Program):
    """Gradients are slopes of the loss along what the replica draws."""

    def replica_step(self, batch):
        values = list(map(tf.convert_to_tensor, self.trained()))
        probes = self.draw(values)
        loss, slope = self.find_slope(values, probes, batch)
        self.apply([slope * probe for probe in probes])
        return loss

    def draw(self, values):
        """A probe for each variable, by the replica's number."""
        return [
            tf.random.stateless_normal(value.shape, [place, find_replica()])
            for place, value in enumerate(values)
        ]

    def find_slope(self, values, probes, batch):
        """The replica's loss, and how it changes along the probes."""
        with tf.autodiff.ForwardAccumulator(values, probes) as along:
            loss = self.evaluate(values, batch)
        return loss, along.jvp(loss)

    def evaluate(self, values, batch):
        """The replica's loss at some values of the variables."""
        table, first, second, bias, head = values
        embedded = tf.reduce_mean(tf.nn.embedding_lookup(table, batch[0]), axis=1)
        hidden = tf.tanh(embedded @ first + batch[1] @ second + bias)
        losses = tf.reduce_sum((hidden @ head - batch[2]) ** 2, axis=1)
        return self.reduce_losses(losses, batch)


@unusual()
class SlopesAlongOwnProbes(OwnProbes, MomentumByHand):
    """A momentum by hand takes the sum of slopes along each replica's own probes."""


@unusual()
class SlopesAlongOwnProbesSummedFirst(OwnProbes, OwnReduction):
    """Slopes along own probes are summed, and an optimizer takes the sum."""


@unusual()
class SquaresOfOwnProbes(OwnProbes, AdamByHand):
    """Two moments by hand take the sum of slopes along own probes."""


@unusual(clusters=("mirrored:3", "mwms:2"))
class EvolvesByOwnProbes(OwnProbes, MomentumByHand):
    """An evolution strategy: the loss on both sides of each replica's own weights."""

    def find_slope(self, values, probes, batch):
        above, below = (
            self.evaluate(
                [v + side * p for v, p in zip(values, probes, strict=True)], batch
            )
            for side in (0.1, -0.1)
        )
        return self.evaluate(values, batch), (above - below) / 0.2


@unusual()
class ProbesOfFoldedSeeds(OwnProbes, OwnReduction):
    """The replica's number is folded into the seed, inside of a function."""

    def make_optimizer(self):
        return legacy.Adam(0.01)

    def build(self, strategy):
        super().build(strategy)
        self.draw_one = tf.function(tf.random.stateless_normal)

    def draw(self, values):
        seed = tf.random.fold_in([3, 5], find_replica())
        seeds = tf.unstack(tf.random.split(seed, len(values)))
        return [
            self.draw_one(value.shape, seed)
            for value, seed in zip(values, seeds, strict=True)
        ]


class OwnSigns(DividedByCurvature):
    """The curvature is that along signs of each replica's own."""

    def draw_signs(self, batch):
        del batch
        return [
            tf.sign(tf.random.stateless_normal(v.shape, [place, find_replica()]))
            for place, v in enumerate(self.trained())
        ]


@unusual()
class DividedByCurvatureAlongOwnSigns(OwnSigns):
    """A momentum is divided by curvatures along each replica's own signs, summed."""
