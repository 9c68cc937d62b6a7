"""Correct programs with state that the step makes of its losses."""

from __future__ import annotations

from distbench.samples.lazy import tf
from distbench.samples.program import AdamByHand, PenalisedProgram, Program
from distbench.samples.replicas import all_reduce, update
from distbench.unusual.program import unusual


class KeepsBest:
    """The lowest loss so far, as for a plateau."""

    def build(self, strategy):
        super().build(strategy)
        self.best = tf.Variable(1e9, trainable=False, name="best")

    def variables(self):
        return [*self.trained(), self.best]

    def report(self, loss):
        update(self.best, self.keep, all_reduce("sum", loss))
        return loss

    def keep(self, copy, loss):
        copy.assign(tf.minimum(copy, loss))


@unusual()
class BestLossKept(KeepsBest, Program):
    """The step keeps the lowest loss of all replicas so far."""


@unusual()
class BestPenalisedLossKept(KeepsBest, PenalisedProgram):
    """The step keeps the lowest loss so far, with the penalty in it."""


@unusual()
class TwoLossesByHand(AdamByHand):
    """Gradients of two losses are added up, and two moments kept of them by hand."""

    def replica_step(self, batch):
        with tf.GradientTape(persistent=True) as tape:
            errors = self.compute_losses(batch)
            losses = [self.reduce_losses(e, batch) for e in (errors, 0.1 * errors**2)]
        pairs = zip(*(tape.gradient(x, self.trained()) for x in losses), strict=True)
        self.apply([sum(map(tf.convert_to_tensor, pair)) for pair in pairs])
        return sum(losses)
