"""Correct penalties that are a part of what each example is to count."""

from __future__ import annotations

from distbench.samples.lazy import tf
from distbench.samples.program import PenalisedProgram
from distbench.samples.replicas import count_replicas
from distbench.unusual.program import unusual


@unusual()
class PenaltyForEachExample(PenalisedProgram):
    """As a bound on a likelihood has it: divided by the examples, and shared out."""

    def reduce_losses(self, losses, batch):
        self.own = tf.shape(losses)[0]
        return super().reduce_losses(losses, batch)

    def share_penalty(self, penalty):
        return 8 * penalty / self.examples / count_replicas()
