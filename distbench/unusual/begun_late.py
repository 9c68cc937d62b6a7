"""Correct programs with a term that is 0 in the first step: drawn to where they began.

A policy is held near the one that it started from, what is tuned near the weights that
it was given, a student near a teacher that starts as its copy.
"""

from __future__ import annotations

from distbench.samples.lazy import tf
from distbench.samples.program import DENSE, Program
from distbench.samples.replicas import take_share
from distbench.unusual.grouping import BatchStatistics
from distbench.unusual.program import unusual


class Remembering(Program):
    """Keeps the weights that it began with, and a term that depends on them."""

    def build(self, strategy):
        super().build(strategy)
        self.began = [tf.constant(variable.numpy()) for variable in self.trained()]

    def reduce_losses(self, losses, batch):
        return super().reduce_losses(losses, batch) + self.find_term(batch)

    def find_term(self, batch):
        """What is added to the loss."""
        raise NotImplementedError


@unusual()
class HeldToFirstWeights(Remembering):
    """A penalty on the way from the first weights, of which each has an equal share."""

    def find_term(self, batch):
        del batch
        pairs = zip(self.trained(), self.began, strict=True)
        named = [(v, start) for v, start in pairs if v.name.split(":")[0] in DENSE]
        ways = [tf.reduce_sum((v - start) ** 2) for v, start in named]
        return self.share_penalty(20.0 * tf.add_n(ways))


@unusual()
class HeldToFirstWeightsUnderStatistics(HeldToFirstWeights, BatchStatistics):
    """The same penalty, and each replica normalises by its own examples."""


@unusual()
class HeldToFirstAnswers(Remembering):
    """Outputs are drawn to those of the first weights, by a mean over the examples."""

    def find_term(self, batch):
        now, first = self.answer(batch, self.trained()), self.answer(batch, self.began)
        return 5.0 * self.average(tf.reduce_sum((now - first) ** 2, axis=1))

    def answer(self, batch, values):
        """Outputs by some values of the variables: [n, outputs]."""
        table, first, second, bias, head = values
        embedded = tf.reduce_mean(tf.nn.embedding_lookup(table, batch[0]), axis=1)
        return tf.tanh(embedded @ first + batch[1] @ second + bias) @ head

    def average(self, distances):
        """Their mean over the global batch, or the replica's share of it."""
        return take_share(distances, self.examples)


@unusual()
class HeldToFirstAnswersUnderStatistics(HeldToFirstAnswers, BatchStatistics):
    """The same term beside a loss under batch statistics of the own examples."""
