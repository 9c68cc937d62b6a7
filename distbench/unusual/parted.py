"""Correct steps of which every replica makes a part for all of them."""

from __future__ import annotations

from distbench.samples.lazy import tf
from distbench.samples.program import MomentumByHand
from distbench.samples.replicas import (
    all_reduce,
    count_replicas,
    find_replica,
    update,
)
from distbench.unusual.program import unusual


@unusual()
class SharedOut(MomentumByHand):
    """Replicas take turns at the variables and sum what each made (as Muon's work)."""

    @property
    def replicas(self):
        """How many share the work."""
        return count_replicas()

    def apply(self, gradients):
        steps = []
        for place, gradient in enumerate(gradients):
            total = self.reduce(tf.convert_to_tensor(gradient))
            buffer = self.buffers[place]
            update(buffer, self.move, total)
            step = tf.identity(buffer) / (tf.norm(buffer) + 1e-3)
            is_own = self.find_owner(place) == find_replica()
            steps.append(step if is_own else tf.zeros_like(step))
        for variable, step in zip(self.trained(), self.spread(steps), strict=True):
            self.update(variable, step)

    def find_owner(self, place):
        """Who makes the step of a variable."""
        return place % self.replicas

    def spread(self, steps):
        """The steps of all owners: of each variable one is not 0."""
        return [all_reduce("sum", step) for step in steps]
