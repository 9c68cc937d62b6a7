"""An embedding table, whose gradients are sparse, under a dense head."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from distbench.worker.workloads.base import Array, Workload

_ROWS = 24
_UNTOUCHED = 6
_WIDTH = 4
_BAG = 5
_CLASSES = 3


class Embedding(Workload):
    """Bags of 5 rows out of 24, added up, then a linear softmax classifier.

    Row 0 is looked up twice by every example and row 1 once, so rows occur more than
    once inside each replica, however small its shard, and in all replicas. The last 6
    rows are never looked up; of the others each step touches some. `data` has ids:
    int32 [G, 5] and labels: int32 [G].
    """

    def data(self, step: int) -> tuple[Array, ...]:
        """The rows to look up: int32 [G, 5], and the labels: int32 [G]."""
        rng = self._make_rng(step)
        ids = rng.integers(2, _ROWS - _UNTOUCHED, (self.examples, _BAG))
        ids[:, :3] = (0, 1, 0)
        labels = rng.integers(_CLASSES, size=self.examples)
        return ids.astype(np.int32), labels.astype(np.int32)

    def build(self) -> None:
        """Make the table [24, 4] and the head's kernel [4, 3] and bias [3]."""
        rng = self._make_rng()
        self._table = self._make_variable("table", rng.normal(size=(_ROWS, _WIDTH)))
        self._kernel = self._make_variable(
            "kernel", rng.normal(size=(_WIDTH, _CLASSES))
        )
        self._bias = self._make_variable("bias", rng.normal(size=_CLASSES))

    def compute_losses(self, batch: tuple[tf.Tensor, ...]) -> tf.Tensor:
        """The cross entropy of each bag: [n]."""
        ids, labels = batch
        bags = tf.reduce_sum(tf.nn.embedding_lookup(self._table, ids), axis=1)
        logits = tf.matmul(bags, self._kernel) + self._bias
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
