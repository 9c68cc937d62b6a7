"""Correct steps that gather the inputs of all replicas, and make features of these."""

from __future__ import annotations

from distbench.samples.lazy import tf
from distbench.samples.replicas import all_reduce, gather
from distbench.unusual.exchange import ALIKE, NegativesOfAll
from distbench.unusual.grouping import BatchStatistics
from distbench.unusual.program import unusual


@unusual(clusters=ALIKE)
class NegativesOfGatheredInputs(NegativesOfAll):
    """A contrastive loss: every replica makes keys of the inputs of all."""

    def compute_losses(self, batch):
        words, features, _ = batch
        queries = self.predict(batch)
        keys = self.make_keys(gather(tf.identity(words)), gather(tf.identity(features)))
        size = tf.shape(queries)[0]
        answers = tf.range(size) + self.find_first(size)
        scores = queries @ tf.transpose(keys)
        return tf.nn.sparse_softmax_cross_entropy_with_logits(answers, scores)

    def make_keys(self, words, features):
        """One for each example."""
        return self.predict((words, 0.8 * features))


@unusual(clusters=ALIKE)
class GatheredInputsUnderStatistics(NegativesOfGatheredInputs, BatchStatistics):
    """The same, where queries are normalised by statistics of the own examples."""

    def make_keys(self, words, features):
        embedded = tf.reduce_mean(tf.nn.embedding_lookup(self.table, words), axis=1)
        return tf.tanh(embedded @ self.first + features @ self.second) @ self.head


@unusual(clusters=ALIKE)
class WeighedCandidatesOfAll(NegativesOfAll):
    """Scores less the logarithm of how often a candidate comes; equal ones masked."""

    def compute_losses(self, batch):
        words, features, targets = batch
        queries = self.predict(batch)
        keys = gather(self.predict((words, 0.8 * features)))
        often = gather(self.weigh(tf.abs(targets[:, 0]) + 0.1))
        scores = queries @ tf.transpose(keys) - tf.math.log(often)
        first = words[:, 0]
        size, all_first = tf.shape(first)[0], gather(first)
        answers = tf.range(size) + self.find_first(size)
        is_due = tf.one_hot(answers, tf.size(all_first))
        is_equal = tf.cast(first[:, tf.newaxis] == all_first, self.dtype)
        scores -= 1e9 * (is_equal - is_due)
        return tf.nn.softmax_cross_entropy_with_logits(is_due, scores)

    def weigh(self, counts):
        """Shares of the own candidates in those of all."""
        return counts / all_reduce("sum", tf.reduce_sum(counts))
