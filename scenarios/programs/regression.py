"""The train program that the others of this folder change in one point.

Every mistake needs something to show in: the replicas have other examples and another
number of them, rows of the table are shared between replicas and repeated within one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

WORDS, WIDTH, OUTPUTS = 6, 4, 3


class Regression:
    """A table of words and a linear layer; the optimizer sums the gradients."""

    loss_reduction = "sum"
    examples = 16

    def build(self, strategy: Any) -> None:  # noqa: ARG002  # the contract
        rng = np.random.default_rng(7)
        table = rng.normal(size=(WORDS, WIDTH)).astype("float32")
        kernel = rng.normal(size=(WIDTH, OUTPUTS)).astype("float32")
        self.table = tf.Variable(table, name="table")
        self.kernel = tf.Variable(kernel, name="kernel")
        self.bias = tf.Variable(np.ones(OUTPUTS, "float32"), name="bias")
        self._optimizer = self.make_optimizer()

    def make_optimizer(self) -> Any:
        return tf_keras.optimizers.legacy.SGD(0.05, momentum=0.9)

    def variables(self) -> list[Any]:
        return [self.table, self.kernel, self.bias]

    def optimizer(self) -> Any:
        return self._optimizer

    def data(self, step: int) -> tuple[Any, Any]:
        """Words: int64 [G, 2], and targets: float32 [G, 3]."""
        rng = np.random.default_rng(step + 100)
        words = rng.integers(0, WORDS, size=(self.examples, 2))
        return words, rng.normal(size=(self.examples, OUTPUTS)).astype("float32")

    def replica_step(self, batch: tuple[Any, Any]) -> Any:
        with tf.GradientTape() as tape:
            loss = self.compute_loss(batch)
        gradients = tape.gradient(loss, self.variables())
        self.apply(list(zip(gradients, self.variables(), strict=True)))
        return loss

    def compute_loss(self, batch: tuple[Any, Any]) -> Any:
        """The replica's share of the global batch's loss."""
        words, targets = batch
        errors = (self.predict(words) - targets) ** 2
        return tf.reduce_sum(errors) / self.examples

    def predict(self, words: Any) -> Any:
        embedded = tf.reduce_sum(tf.nn.embedding_lookup(self.table, words), axis=1)
        return embedded @ self.kernel + self.bias

    def apply(self, pairs: list[tuple[Any, Any]]) -> None:
        self._optimizer.apply_gradients(pairs)


def count_replicas() -> int:
    return int(tf.distribute.get_strategy().num_replicas_in_sync)


def all_reduce(operation: str, pairs: Any) -> list[tuple[Any, Any]]:
    """Reduce the gradients of (gradient, variable) pairs over the replicas."""
    gradients, variables = zip(*pairs, strict=True)
    reduced = tf.distribute.get_replica_context().all_reduce(operation, list(gradients))
    return list(zip(reduced, variables, strict=True))
