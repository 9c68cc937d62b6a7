"""Correct steps of which every replica makes a part for all of them."""

from __future__ import annotations

from distbench.samples.lazy import tf
from distbench.samples.program import ByHand, MomentumByHand
from distbench.samples.replicas import (
    all_reduce,
    count_replicas,
    find_replica,
    gather,
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


@unusual()
class OwnersMakeVariables(ByHand):
    """Each replica makes what its variables become, and all are summed."""

    def apply(self, gradients):
        for place, variable in enumerate(self.trained()):
            total = self.reduce(tf.convert_to_tensor(gradients[place]))
            made = variable - self.rate * total
            is_own = place % count_replicas() == find_replica()
            parts = made if is_own else tf.zeros_like(made)
            update(variable, self.set, self.spread(parts))

    def spread(self, parts):
        """What becomes of a variable; all but its owner have 0 for it."""
        return all_reduce("sum", parts)

    def set(self, copy, value):
        """One copy of a variable."""
        copy.assign(value)


@unusual()
class PartsOfOneVector(MomentumByHand):
    """Of one vector of all each replica updates a part, and hands it on (ZeRO)."""

    def build(self, strategy):
        super().build(strategy)
        self.sizes = [v.shape.num_elements() for v in self.trained()]
        self.padding = -sum(self.sizes) % 12
        self.kept = tf.Variable(
            tf.zeros([sum(self.sizes) + self.padding]), trainable=False, name="kept"
        )

    def variables(self):
        return [*self.trained(), self.kept]

    def apply(self, gradients):
        dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
        flat = [*(tf.reshape(g, [-1]) for g in dense), tf.zeros([self.padding])]
        length = self.kept.shape[0] // count_replicas()
        own = slice(find_replica() * length, (find_replica() + 1) * length)
        taken = self.reduce(tf.concat(flat, axis=0))[own]
        whole = gather(self.beta * self.kept[own] + taken)
        update(self.kept, self.set, whole)
        steps = tf.split(whole, [*self.sizes, self.padding])
        for variable, step in zip(self.trained(), steps, strict=False):
            self.update(variable, tf.reshape(step, variable.shape))

    def set(self, copy, value):
        """One copy of what is kept of all variables."""
        copy.assign(value)
