"""What users do with the rows of a sparse gradient, and rules that look at slices."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from distbench.samples.lazy import tf
from distbench.samples.optimizers import OwnRule
from distbench.samples.program import OwnReduction, Program
from distbench.samples.replicas import all_reduce, count_replicas, gather
from distbench.samples.slices import add_up_rows


def sum_dense(pairs: Iterable[Any]) -> list[Any]:
    """Sum over the replicas, of sparse gradients too as dense ones."""
    gradients, variables = zip(*pairs, strict=True)
    total = all_reduce("sum", [tf.convert_to_tensor(g) for g in gradients])
    return list(zip(total, variables, strict=True))


class AddedUpBefore:
    """Put before an optimizer: each replica adds up its rows to hand over fewer."""

    def _transform_unaggregated_gradients(self, grads_and_vars: Any) -> Any:
        return [(add_up_rows(g), v) for g, v in grads_and_vars]


class OwnSparseReduction(OwnReduction):
    """Dense gradients are summed; the table's are gathered row by row."""

    def reduce(self, gradients: list[Any]) -> list[Any]:
        """Sum over the replicas."""
        sparse, *dense = gradients
        return [self.reduce_rows(sparse), *all_reduce("sum", dense)]

    def reduce_rows(self, slices: Any) -> Any:
        """The table's gradient of all replicas."""
        return tf.IndexedSlices(
            gather(slices.values), gather(slices.indices), slices.dense_shape
        )

    def add_repeated(self, slices: Any) -> tuple[Any, Any]:
        """The replica's own repeated rows added up: row numbers and values."""
        total = add_up_rows(slices)
        return total.indices, total.values


class DenseOnACluster:
    """Put before an optimizer: gradients are dense where several replicas sum them."""

    def _aggregate_gradients(self, grads_and_vars: Any) -> Any:
        if count_replicas() == 1:
            return list(grads_and_vars)
        return sum_dense(grads_and_vars)


class OfSlices(OwnRule):
    """A rule that is handed the slices of a row as they come, and adds up none."""

    def _resource_apply_sparse_duplicate_indices(
        self, grad: Any, handle: Any, indices: Any, **options: Any
    ) -> Any:
        del options
        return self.take_slices(grad, handle, indices)

    def take_slices(self, slices: Any, var: Any, rows: Any) -> Any:
        """Change one copy of a variable, and of its slots."""
        raise NotImplementedError


class RowSquares(OfSlices):
    """One sum of squares for each row (row-wise Adagrad): of each slice, its mean.

    a <- a + mean g squared,  var <- var - rate g / sqrt(a)
    """

    def create_slots(self, variable: Any) -> None:
        """Make the slots of a variable."""
        start = tf.constant_initializer(0.1)
        self.add_slot(variable, "a", start, shape=variable.shape[:1])  # type: ignore[attr-defined]  # of the base

    def _resource_apply_dense(
        self, grad: Any, var: Any, apply_state: Any = None
    ) -> Any:
        del apply_state
        rows = tf.range(tf.shape(var)[0])
        return self.take_slices(grad, var, rows)

    def take_slices(self, slices: Any, var: Any, rows: Any) -> Any:
        """Change one copy of a variable, and of its slots."""
        slot = self.get_slot(var, "a")  # type: ignore[attr-defined]  # of the base
        self.count(slot, slices, rows)
        return self.step_along(slices, var, rows)

    def step_along(self, slices: Any, var: Any, rows: Any) -> Any:
        """Change one copy of a variable by what its slot leaves of a gradient."""
        slot = self.get_slot(var, "a")  # type: ignore[attr-defined]  # of the base
        below = tf.sqrt(tf.gather(slot, rows))
        below = tf.reshape(below, [-1, *(1 for _ in var.shape[1:])])
        step = tf.IndexedSlices(self.rate * slices / below, rows)
        return var.scatter_sub(step)

    def count(self, slot: Any, slices: Any, rows: Any) -> None:
        """Change one copy of a slot."""
        axes = list(range(1, len(slices.shape)))
        slot.scatter_add(tf.IndexedSlices(tf.reduce_mean(slices**2, axes), rows))


class RowCounts(RowSquares):
    """A row's rate falls with the number of its slices so far."""

    def count(self, slot: Any, slices: Any, rows: Any) -> None:
        """Change one copy of a slot."""
        slot.scatter_add(tf.IndexedSlices(tf.ones_like(slices[..., 0]), rows))

    def take_slices(self, slices: Any, var: Any, rows: Any) -> Any:
        """Count the slices, and take a step along their sum."""
        slot = self.get_slot(var, "a")  # type: ignore[attr-defined]  # of the base
        if len(var.shape) > 1:
            self.count(slot, slices, rows)
        total = add_up_rows(tf.IndexedSlices(slices, rows))
        return self.step_along(total.values, var, total.indices)


class LazyMomentum(OfSlices):
    """Momentum of the rows alone that have a slice; each is written, not added up.

    m <- beta m + g,  var <- var - rate m
    """

    def take_slices(self, slices: Any, var: Any, rows: Any) -> Any:
        """Change one copy of a variable, and of its slots."""
        slot = self.get_slot(var, "m")  # type: ignore[attr-defined]  # of the base
        moved = self.beta * tf.gather(slot, rows) + slices
        slot.scatter_update(tf.IndexedSlices(moved, rows))
        return var.scatter_sub(tf.IndexedSlices(self.rate * moved, rows))


class LookedUpOnce(Program):
    """The model looks up each word of its batch once, however often it occurs."""

    def predict(self, batch: Any) -> Any:
        """Outputs of the model: [n, outputs]."""
        words, features = batch[0], batch[1]
        once, place = tf.unique(tf.reshape(words, [-1]))
        rows = tf.gather(tf.nn.embedding_lookup(self.table, once), place)
        each = tf.reshape(rows, [*tf.unstack(tf.shape(words)), self.table.shape[1]])
        embedded = tf.reduce_mean(each, axis=1)
        hidden = embedded @ self.first + features @ self.second + self.bias
        return tf.tanh(hidden) @ self.head
