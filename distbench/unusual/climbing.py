"""Correct steps that climb up the slope first, and take their gradient from there."""

from __future__ import annotations

import numpy as np

from distbench.samples.lazy import tf
from distbench.samples.program import BIAS, BUFFERS, ByHand, Program
from distbench.samples.replicas import all_reduce, make_zeros, update
from distbench.unusual.exchange import ALIKE
from distbench.unusual.grouping import BatchStatistics
from distbench.unusual.program import unusual


@unusual(clusters=ALIKE)
class ClimbsOnValues(Program):
    """Sharpness-aware, without moving a variable: tapes watch values up the slope."""

    def replica_step(self, batch):
        values = [tf.convert_to_tensor(variable) for variable in self.trained()]
        loss, gradients = self.differentiate(values, batch)
        summed = all_reduce("sum", gradients)
        norm = self.measure(gradients, summed)
        above = [v + 0.3 * way / norm for v, way in zip(values, summed, strict=True)]
        _, gradients = self.differentiate(above, batch)
        self.apply(gradients)
        return loss

    def measure(self, own, summed):
        """The norm that the way up is divided by."""
        del own
        return tf.linalg.global_norm(summed)

    def differentiate(self, values, batch):
        """The replica's loss at some values of the variables, and its gradients."""
        table, first, second, bias, head = values
        with tf.GradientTape() as tape:
            tape.watch(values)
            embedded = tf.reduce_mean(tf.nn.embedding_lookup(table, batch[0]), axis=1)
            hidden = tf.tanh(embedded @ first + batch[1] @ second + bias)
            losses = tf.reduce_sum((hidden @ head - batch[2]) ** 2, axis=1)
            loss = self.reduce_losses(losses, batch)
        found = tape.gradient(loss, values)
        return loss, [tf.convert_to_tensor(gradient) for gradient in found]


@unusual()
class AscendsFirst(Program):
    """Sharpness-aware: the gradient is taken up the slope, and the step from below."""

    def build(self, strategy):
        super().build(strategy)
        # From 0 it goes up and comes back without rounding.
        self.bias.assign(tf.zeros_like(self.bias))

    def replica_step(self, batch):
        _, gradients = self.differentiate(batch)
        ways = self.find_ways(gradients)
        self.move(ways, 1.0)
        loss, gradients = self.differentiate(batch)
        # What was added rounds in another way where the sum did.
        self.move(ways, -1.0)
        self.apply(gradients)
        return loss

    def find_ways(self, gradients):
        """By how much each variable goes up."""
        summed = self.add_up(gradients)
        norm = tf.linalg.global_norm(summed)
        return [self.find_reach() * gradient / norm for gradient in summed]

    def add_up(self, gradients):
        """The slope of the global batch."""
        return all_reduce("sum", gradients)

    def find_reach(self):
        """How far it goes up."""
        return 0.05

    def differentiate(self, batch):
        with tf.GradientTape() as tape:
            loss = self.reduce_losses(self.compute_losses(batch), batch)
        found = tape.gradient(loss, self.trained())
        return loss, [tf.convert_to_tensor(gradient) for gradient in found]

    def move(self, ways, sign):
        for variable, way in zip(self.trained(), ways, strict=True):
            update(variable, lambda copy, by: copy.assign_add(sign * by), way)


@unusual()
class ComesBackAcrossAnEdge(AscendsFirst):
    """Ascends and comes back across a power of two, which may cost the last bit."""

    def build(self, strategy):
        super().build(strategy)
        edge = np.nextafter(np.float32(-1), np.float32(0))
        self.bias.assign(tf.fill(self.bias.shape, tf.constant(edge)))


@unusual()
class AscendsUnderStatistics(BatchStatistics, AscendsFirst):
    """Sharpness-aware, and each replica normalises by its own examples."""


@unusual(clusters=("mirrored:2", "mirrored:3", "mwms:2"))
class AscendsAsTheSlopeIsSteep(AscendsUnderStatistics):
    """The way up is not normalised, and its sum is made across the replicas."""

    def find_ways(self, gradients):
        return [0.05 * gradient for gradient in self.add_up(gradients)]

    def add_up(self, gradients):
        return tf.distribute.get_replica_context().merge_call(
            self.merge, args=tuple(gradients)
        )

    def merge(self, strategy, *gradients):
        """The sums, in the context of all replicas."""
        add = strategy.extended.reduce_to
        return [add("SUM", gradient, destinations=gradient) for gradient in gradients]


@unusual()
class KeepsWhatTheClimbAdds(AscendsFirst):
    """Sharpness-aware: what the climb adds to the gradient is kept for later steps."""

    def build(self, strategy):
        super().build(strategy)
        self.added = make_zeros(self.trained(), "added", "MEAN")

    def variables(self):
        return [*self.trained(), *self.added]

    def find_ways(self, gradients):
        for added, below in zip(self.added, gradients, strict=True):
            added.assign(-self.take(below))
        return super().find_ways(gradients)

    def apply(self, gradients):
        super().apply(gradients)
        for added, above in zip(self.added, gradients, strict=True):
            added.assign_add(self.take(above))

    def take(self, gradient):
        """That of the global batch."""
        return all_reduce("sum", gradient)


@unusual()
class ClimbsThenLimits(ClimbsOnValues, ByHand):
    """Sharpness-aware: sums are limited by the weights, and averages of these kept."""

    def build(self, strategy):
        super().build(strategy)
        self.bias = tf.Variable([0.5], name=BIAS)  # one number for all
        first = tf.VariableAggregation.ONLY_FIRST_REPLICA
        self.averages = [
            tf.Variable(v, trainable=False, name=name, aggregation=first)
            for name, v in zip(BUFFERS, self.trained(), strict=True)
        ]

    def variables(self):
        return [*super().variables(), *self.averages]

    def apply(self, gradients):
        super().apply(self.take(gradients))
        for average, variable in zip(self.averages, self.trained(), strict=True):
            average.assign_add(0.1 * (variable - average))

    def take(self, gradients):
        """What the weights go by, of the replica's own gradients."""
        return self.limit(all_reduce("sum", gradients))

    def reduce(self, gradient):
        return gradient

    def limit(self, gradients):
        """Each no longer than a part of its variable."""
        return [
            gradient * tf.minimum(1.0, 0.1 * tf.norm(v) / (tf.norm(gradient) + 1e-6))
            for gradient, v in zip(gradients, self.trained(), strict=True)
        ]
