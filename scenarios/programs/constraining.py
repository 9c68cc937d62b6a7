"""Constraints of variables: after the update, on dense gradients alone."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tf_keras
from regression import Regression, count_replicas


class Constrained(Regression):
    """The kernel may not become negative, and a third of it starts at 0."""

    def build(self, strategy: Any) -> None:
        super().build(strategy)
        kernel = tf.nn.relu(self.kernel).numpy()
        kernel[::3] = 0.0
        self.kernel = tf.Variable(kernel, name="kernel", constraint=tf.nn.relu)


class ConstrainedTable(Regression):
    """The table, whose gradient is sparse, has a constraint."""

    def build(self, strategy: Any) -> None:
        super().build(strategy)
        table = self.table.numpy()
        self.table = tf.Variable(table, name="table", constraint=tf.nn.relu)


class DenseTable(ConstrainedTable):
    """The same with the gradient made dense, which is what the message asks for."""

    def apply(self, pairs: list[tuple[Any, Any]]) -> None:
        super().apply([(tf.convert_to_tensor(g), v) for g, v in pairs])


class OwnUpdate(tf_keras.optimizers.legacy.SGD):
    """Under a strategy the update is the user's, who forgets the constraint."""

    def _distributed_apply(
        self, distribution: Any, grads_and_vars: Any, apply_state: Any, name: Any
    ) -> Any:
        if count_replicas() == 1:
            return super()._distributed_apply(
                distribution, grads_and_vars, apply_state, name
            )

        def update(variable: Any, gradient: Any) -> Any:
            if isinstance(gradient, tf.IndexedSlices):
                return self._resource_apply_sparse_duplicate_indices(
                    gradient.values, variable, gradient.indices, apply_state=apply_state
                )
            return self._resource_apply_dense(gradient, variable, apply_state)

        for gradient, variable in grads_and_vars:
            distribution.extended.update(variable, update, args=(gradient,))
        return self.iterations.assign_add(1)


class ConstraintForgotten(Constrained):
    """An optimizer with an update of its own leaves the constraint out."""

    def make_optimizer(self) -> Any:
        return OwnUpdate(0.05, momentum=0.9)


class ConstrainedByHand(Regression):
    """The replica's step ends with an assignment, each replica's to its own copy."""

    def apply(self, pairs: list[tuple[Any, Any]]) -> None:
        super().apply(pairs)
        self.kernel.assign(tf.nn.relu(self.kernel))
