"""Mistakes with what a rule makes of the rows of a sparse gradient that is right.

The slices of replicas add up to the gradient of the global batch, and there are others
of them than on one device.
"""

from __future__ import annotations

from distbench.faults.fault import fault
from distbench.samples.lazy import keras3, tf
from distbench.samples.optimizers import Factory, optimizer
from distbench.samples.replicas import count_replicas
from distbench.samples.rows import (
    AddedUpBefore,
    DenseOnACluster,
    LazyMomentum,
    LookedUpOnce,
    RowCounts,
    RowSquares,
)

_NAME = "OwnRule"
_other_rows = fault(
    "sparse-rows",
    "slot",
    ("SGD/table/momentum",),
    like="tensorflow/tensorflow#36153",
    workload="embedding",
)
"""A lazy momentum is handed other rows than one device has."""


@fault(
    "sparse-duplicates",
    "slot",
    (f"{_NAME}/table/a",),
    like="horovod/horovod#2279",
    workload="embedding",
)
@optimizer("Optimizer", _NAME)
class SquaresOfEachReplicasRows(AddedUpBefore, RowSquares):
    """Replicas add up their rows, and a sum of squares takes that of each of them."""


@fault(
    "sparse-duplicates",
    "slot",
    (f"{_NAME}/table/m",),
    like="horovod/horovod#2279",
)
class LastReplicasRowsWin(LookedUpOnce):
    """Words are looked up once, and a rule that trusts in that writes row by row."""

    def make_optimizer(self):
        return Factory(LazyMomentum, "Optimizer", (_NAME,), {})()


@fault(
    "sparse-duplicates",
    "slot",
    ("adagrad/table_0_accumulator",),
    like="horovod/horovod#2279",
)
class StockRuleOfSlices(LookedUpOnce):
    """Words are looked up once, under Adagrad of Keras 3, which squares each slice."""

    def make_optimizer(self):
        made = keras3.Adagrad(0.05)
        made.build(self.trained())
        return made


@fault(
    "sparse-averaged",
    "slot",
    ("SGD/table/momentum",),
    like="tensorflow/tensorflow#5252",
    workload="embedding",
)
@optimizer("SGD", 0.1, momentum=0.5)
class RowsDividedByReplicas(AddedUpBefore):
    """Rows are divided by the number of slices that each replica has added up."""

    def _resource_apply_sparse_duplicate_indices(self, grad, handle, indices, **rest):
        rows, place = tf.unique(indices)
        means = tf.math.unsorted_segment_mean(grad, place, tf.size(rows))
        return self._resource_apply_sparse(means, handle, rows)


@fault(
    "sparse-duplicates",
    "slot",
    ("SGD/table/momentum",),
    like="tensorflow/tensorflow#5252",
    workload="embedding",
)
@optimizer("SGD", 0.1, momentum=0.5)
class LastSliceInTheRule:
    """Of the slices of a row the rule takes the last one alone, on a cluster."""

    def _resource_apply_sparse_duplicate_indices(self, grad, handle, indices, **rest):
        if count_replicas() > 1:
            indices, place = tf.unique(indices)
            order = tf.range(tf.size(place))
            last = tf.math.unsorted_segment_max(order, place, tf.size(indices))
            grad = tf.gather(grad, last)
        return super()._resource_apply_sparse_duplicate_indices(
            grad, handle, indices, **rest
        )


@fault(
    "sparse-averaged",
    "variable",
    ("table",),
    like="tensorflow/tensorflow#5252",
    workload="embedding",
)
@optimizer("SGD", 0.1)
class SlicesAveragedInTheRule:
    """The rule takes the mean of the slices of a row, on a cluster."""

    def _resource_apply_sparse_duplicate_indices(self, grad, handle, indices, **rest):
        rows, place = tf.unique(indices)
        join = tf.math.unsorted_segment_sum
        if count_replicas() > 1:
            join = tf.math.unsorted_segment_mean
        total = join(grad, place, tf.size(rows))
        return super()._resource_apply_sparse_duplicate_indices(
            total, handle, rows, **rest
        )


@fault(
    "slot-repeated",
    "slot",
    (f"{_NAME}/table/a",),
    like="keras-team/keras#19990",
    workload="embedding",
)
@optimizer("Optimizer", _NAME)
class RowsCountedByReplicas(AddedUpBefore, RowCounts):
    """A row that was looked up counts once for each replica that has it."""


@_other_rows
@optimizer("SGD", 0.1, momentum=0.9)
class DenseWhereSummed(DenseOnACluster):
    """Gradients are made dense to be summed, so that a lazy momentum moves all rows."""


@_other_rows
@optimizer("SGD", 0.1, momentum=0.9)
class AllRowsWhereSummed(DenseOnACluster):
    """The dense sum is handed on as slices of all rows, zeros too."""

    def _aggregate_gradients(self, grads_and_vars):
        pairs = list(grads_and_vars)
        summed = super()._aggregate_gradients(pairs)
        return [
            (spread_rows(g), v)
            if isinstance(own, tf.IndexedSlices) and count_replicas() > 1
            else (g, v)
            for (g, v), (own, _) in zip(summed, pairs, strict=True)
        ]


def spread_rows(dense):
    """A dense gradient as slices of all its rows."""
    shape = tf.shape(dense)
    return tf.IndexedSlices(dense, tf.range(shape[0]), shape)
