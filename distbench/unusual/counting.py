"""Correct programs that count for each replica what it has seen."""

from __future__ import annotations

from distbench.samples.lazy import keras, tf
from distbench.samples.program import Program
from distbench.samples.replicas import all_reduce, count_replicas, find_replica, gather
from distbench.unusual.exchange import NegativesOfAll
from distbench.unusual.local_state import make_local
from distbench.unusual.program import unusual


class Counting:
    """Put before a program: each replica counts examples, read as their sum."""

    aggregation = "SUM"

    def build(self, strategy):
        super().build(strategy)
        self.seen = make_local("seen", 0.0, self.aggregation)

    def variables(self):
        return [*self.trained(), self.seen]

    def reduce_losses(self, losses, batch):
        self.seen.assign_add(self.count(tf.cast(tf.size(losses), self.seen.dtype)))
        return super().reduce_losses(losses, batch)

    def count(self, number):
        """What a replica adds of its own number."""
        return number


@unusual()
class NegativesOfAllCounted(Counting, NegativesOfAll):
    """The examples of all replicas are the wrong answers; each counts its own ones."""


class Largest(Counting):
    """Put before a program: the largest target so far is kept."""

    def reduce_losses(self, losses, batch):
        self.seen.assign(self.count(tf.maximum(self.seen, tf.reduce_max(batch[1]))))
        return super(Counting, self).reduce_losses(losses, batch)


@unusual()
class LargestOfAllOnTheFirst(Largest, Program):
    """Replica 0 keeps the largest target of all replicas, and the others keep 0."""

    def count(self, number):
        largest = tf.reduce_max(gather(number[None]))
        return tf.where(find_replica() == 0, largest, 0.0)


@unusual()
class MeanOfSizes(Program):
    """Every replica hands the norm of what its step left to a mean."""

    def build(self, strategy):
        super().build(strategy)
        self.sizes = self.make_metric()

    def make_metric(self):
        """The metric, by the name of `sizes`."""
        return keras.metrics.Mean("sizes")

    def variables(self):
        return [*self.trained(), *self.sizes.variables]

    def apply(self, gradients):
        super().apply(gradients)
        self.sizes.update_state(tf.norm(self.second))


@unusual()
class TotalsBesideOneCount(Program):
    """Two totals get N times each replica's share, and one count divides both."""

    def build(self, strategy):
        super().build(strategy)
        names = ("updates", "total_loss", "total_size")
        self.totals = [make_local(name, 0.0, "SUM") for name in names]

    def variables(self):
        return [*self.trained(), *self.totals]

    def compute_losses(self, batch):
        size = tf.reduce_sum(batch[1] ** 2)
        self.totals[2].assign_add(size * count_replicas() / self.examples)
        return super().compute_losses(batch)

    def report(self, loss):
        updates, losses, _ = self.totals
        updates.assign_add(1.0)
        losses.assign_add(loss * count_replicas())
        return loss


@unusual()
class MeanOfThisStep(MeanOfSizes):
    """A mean of N times each replica's share, which every step begins anew."""

    def replica_step(self, batch):
        self.sizes.reset_state()
        return super().replica_step(batch)

    def apply(self, gradients):
        Program.apply(self, gradients)

    def report(self, loss):
        self.sizes.update_state(loss * count_replicas())
        return loss


@unusual()
class OneMoreThanTheCount(Program):
    """A loss over the examples of a kind in the batch of all, and one more of them."""

    def reduce_losses(self, losses, batch):
        weights = tf.cast(batch[2][:, 0] > 0, self.dtype)
        total = tf.reduce_sum(losses * weights)
        return total / self.join(tf.reduce_sum(weights))

    def join(self, own):
        """What the loss is divided by, of what each replica counts."""
        return self.count(all_reduce("sum", own))

    def count(self, number):
        """What the loss is divided by, of the number of all."""
        return number + 1
