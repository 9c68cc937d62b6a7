"""Correct losses that hold the examples of a shard against each other."""

from __future__ import annotations

from distbench.samples.lazy import tf
from distbench.samples.program import PenalisedProgram, Program
from distbench.unusual.grouping import BatchStatisticsUnderMean
from distbench.unusual.program import unusual


@unusual()
class NegativesInTheBatch(Program):
    """A contrastive loss: the other examples of the shard are the wrong answers."""

    def compute_losses(self, batch):
        scores = self.predict(batch) @ tf.transpose(batch[2])
        own = tf.range(tf.shape(scores)[0])
        return tf.nn.sparse_softmax_cross_entropy_with_logits(own, scores)


@unusual()
class ApartFromTheOthers(BatchStatisticsUnderMean):
    """Each example is held against all others of the shard, and not against itself."""

    def compute_losses(self, batch):
        outputs = tf.math.l2_normalize(self.predict(batch), axis=1)
        scores = outputs @ tf.transpose(outputs)
        others = tf.reduce_sum(tf.exp(scores), axis=1) - tf.exp(1.0)
        near = tf.reduce_sum((outputs - batch[2]) ** 2, axis=1)
        return tf.math.log(others) + near


@unusual()
class PenalisedNegatives(NegativesInTheBatch, PenalisedProgram):
    """A contrastive loss, and an equal share of a penalty for each replica."""


@unusual()
class NegativesKeptApart(PenalisedNegatives):
    """The penalty is for columns that are no unit vectors, or not at right angles."""

    def compute_penalty(self):
        products = tf.matmul(self.head, self.head, transpose_a=True)
        return 0.1 * tf.reduce_sum((products - tf.eye(products.shape[0])) ** 2)
