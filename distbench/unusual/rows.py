"""Correct programs whose sparse gradients come in other rows than one device has."""

from __future__ import annotations

from distbench.samples.lazy import tf
from distbench.samples.optimizers import optimizer
from distbench.samples.replicas import gather, gather_each
from distbench.samples.rows import (
    AddedUpBefore,
    DenseOnACluster,
    LookedUpOnce,
    OwnSparseReduction,
    RowCounts,
    RowSquares,
    sum_dense,
)
from distbench.samples.slices import add_up_rows
from distbench.unusual.program import unusual


@unusual(workload="embedding")
@optimizer("Adam", 0.02)
class AddedUpBeforeAdam(AddedUpBefore):
    """Each replica adds up its rows, and the rule adds up those of all replicas."""


@unusual()
class WordsLookedUpOnce(LookedUpOnce):
    """Each replica looks up a word once, so that shared words come N times."""


@unusual(clusters=("mirrored:2", "mwms:4"))
class GatheredLastReplicaFirst(OwnSparseReduction):
    """Indices and values are gathered last replica first, both of them."""

    def reduce_rows(self, slices):
        rows = tf.concat(gather_each(slices.indices)[::-1], 0)
        values = tf.concat(gather_each(slices.values)[::-1], 0)
        return tf.IndexedSlices(values, rows, slices.dense_shape)


@unusual()
class SortedWithTheirValues(OwnSparseReduction):
    """Gathered slices are sorted by their rows, indices and values alike."""

    def reduce_rows(self, slices):
        values, rows = gather(slices.values), gather(slices.indices)
        order = tf.argsort(rows, stable=True)
        return tf.IndexedSlices(
            tf.gather(values, order), tf.gather(rows, order), slices.dense_shape
        )


@unusual(workload="embedding")
@optimizer("SGD", 0.1, momentum=0.9)
class AddsUpInTheRule:
    """The rule adds up the slices of a row itself, and writes each row once."""

    def _resource_apply_sparse_duplicate_indices(self, grad, handle, indices, **rest):
        rows, place = tf.unique(indices)
        total = tf.math.unsorted_segment_sum(grad, place, tf.size(rows))
        return self._resource_apply_sparse(total, handle, rows, **rest)


@unusual(workload="embedding")
@optimizer("Optimizer", "OwnRule")
class SquaresOfSlices(RowSquares):
    """A sum of squares of each slice, of which one device has as many."""


@unusual(workload="embedding")
@optimizer("Optimizer", "OwnRule")
class RowsCountedOncePerStep(AddedUpBefore, RowCounts):
    """A row that was looked up counts once, however many replicas have it."""

    def take_slices(self, slices, var, rows):
        total = add_up_rows(tf.IndexedSlices(slices, rows))
        return super().take_slices(total.values, var, total.indices)


@unusual(workload="embedding")
@optimizer("SGD", 0.1, momentum=0.9)
class DenseEverywhere:
    """Gradients are dense on one device too, where a momentum moves all rows."""

    def _aggregate_gradients(self, grads_and_vars):
        return sum_dense(grads_and_vars)


@unusual(workload="embedding")
@optimizer("Adam", 0.02)
class DenseUnderAdam(DenseOnACluster):
    """Gradients are dense on a cluster alone; the rule moves all rows of either."""
