"""Unusual but correct programs whose loop does a part of the work between two steps."""

from __future__ import annotations

from distbench.samples.lazy import tf
from distbench.samples.program import BUFFERS, Program
from distbench.samples.replicas import all_reduce
from distbench.unusual.program import unusual


@unusual(clusters=("mirrored:2", "mwms:2"))
class FollowedBetweenSteps(Program):
    """Copies that nobody lists go a tenth of the way to the weights."""

    def build(self, strategy):
        super().build(strategy)
        self.copies = [
            tf.Variable(variable, trainable=False, name=name)
            for name, variable in zip(BUFFERS, self.trained(), strict=True)
        ]

    def before_step(self, step):
        if step:
            for copy, variable in zip(self.copies, self.trained(), strict=True):
                self.follow(copy, variable)

    def follow(self, copy, variable):
        copy.assign_add(0.1 * (variable - copy))


@unusual(clusters=("mirrored:2", "mwms:2", "ps:2+1"))
class ComputesFromCopies(FollowedBetweenSteps):
    """The loop copies the weights before each step, which computes from the copies."""

    def follow(self, copy, variable):
        copy.assign(variable)

    def replica_step(self, batch):
        weights = [copy.read_value() for copy in self.copies]
        kept = self.trained()
        with tf.GradientTape() as tape:
            tape.watch(weights)
            self.take(weights)
            loss = self.reduce_losses(self.compute_losses(batch), batch)
            self.take(kept)
        self.apply(tape.gradient(loss, weights))
        return self.report(loss)

    def take(self, weights):
        self.table, self.first, self.second, self.bias, self.head = weights


@unusual(clusters=("mirrored:2", "mwms:2"))
class KeepsLossOfCopies(ComputesFromCopies):
    """A statistic follows the loss, which comes of weights that the loop has copied."""

    def build(self, strategy):
        super().build(strategy)
        self.strategy = strategy
        self.level = tf.Variable(
            1.0,
            trainable=False,
            name="level",
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )

    def variables(self):
        return [*super().variables(), self.level]

    def report(self, loss):
        whole = all_reduce("sum", tf.stop_gradient(loss))
        self.level.assign(0.9 * self.level + 0.1 * whole)
        return super().report(loss)


@unusual(clusters=("mirrored:2", "mwms:2"))
class DecayedBetweenSteps(Program):
    """The loop takes a hundredth of the weights away."""

    def before_step(self, step):
        if step:
            for variable in self.trained():
                variable.assign(variable * (1.0 - self.find_rate()))

    def find_rate(self):
        return 0.01


@unusual(clusters=("mirrored:2", "mwms:2"))
class UpdatedBetweenSteps(Program):
    """A step adds up gradients, and the loop has the optimizer take them then."""

    def build(self, strategy):
        super().build(strategy)
        self.strategy = strategy
        self.kept = [
            tf.Variable(
                tf.zeros_like(variable),
                trainable=False,
                name=name,
                synchronization=tf.VariableSynchronization.ON_READ,
                aggregation=tf.VariableAggregation.SUM,
            )
            for name, variable in zip(BUFFERS, self.trained(), strict=True)
        ]

    def apply(self, gradients):
        for kept, gradient in zip(self.kept, gradients, strict=True):
            kept.assign_add(tf.convert_to_tensor(gradient))

    def before_step(self, step):
        if step:
            self.strategy.run(self.update)

    def reduce(self, gradients):
        return gradients

    def update(self):
        own = [kept.read_value() for kept in self.kept]
        super().apply(self.reduce(own))
        for kept in self.kept:
            kept.assign(tf.zeros_like(kept))
