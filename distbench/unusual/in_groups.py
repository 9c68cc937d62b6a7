"""Correct sums that are taken in groups of replicas first."""

from __future__ import annotations

from distbench.samples.lazy import tf
from distbench.samples.program import OwnReduction
from distbench.samples.replicas import all_reduce, find_replica, gather
from distbench.unusual.program import unusual


@unusual(clusters=("mirrored:4", "mwms:3"))
class FirstOfEachGroupBringsItsSum(OwnReduction):
    """Groups of two replicas sum, and the first of each adds that to the others'."""

    size = 2

    def reduce(self, gradients):
        return [
            all_reduce("sum", self.bring(self.sum_group(tf.convert_to_tensor(g))))
            for g in gradients
        ]

    def sum_group(self, gradient):
        """The sum over the replica's own group."""
        first = find_replica() // self.size * self.size
        everyone = gather(gradient[tf.newaxis])
        return tf.reduce_sum(everyone[first : first + self.size], axis=0)

    def bring(self, total):
        """What a replica adds of its group's sum."""
        return tf.where(find_replica() % self.size == 0, total, tf.zeros_like(total))
