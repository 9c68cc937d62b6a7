"""Mistakes with the order in which values and indices of slices are gathered."""

from __future__ import annotations

from distbench.faults.fault import WIDE, fault
from distbench.samples.lazy import tf
from distbench.samples.program import TABLE
from distbench.samples.replicas import (
    count_replicas,
    find_replica,
    gather,
    gather_each,
)
from distbench.samples.rows import OwnSparseReduction

_rows = fault(
    "sparse-rows",
    "reduced_gradient",
    (TABLE,),
    like="tensorflow/tensorflow#5252",
    clusters=WIDE,
)


@_rows
class IndicesLastReplicaFirst(OwnSparseReduction):
    """Indices are gathered last replica first, and their values first one first."""

    def reduce_rows(self, slices):
        rows = tf.concat(gather_each(slices.indices)[::-1], 0)
        return tf.IndexedSlices(gather(slices.values), rows, slices.dense_shape)


@_rows
class IndicesSortedAlone(OwnSparseReduction):
    """Gathered indices are sorted, and their values are not."""

    def reduce_rows(self, slices):
        values, rows = gather(slices.values), gather(slices.indices)
        if count_replicas() > 1:
            rows = tf.sort(rows)
        return tf.IndexedSlices(values, rows, slices.dense_shape)


@_rows
class ValuesAlongTheRing(OwnSparseReduction):
    """Values come as in a ring, each replica's own first, and indices by rank."""

    def reduce_rows(self, slices):
        parts, own = gather_each(slices.values), find_replica()
        values = tf.concat(parts[own:] + parts[:own], 0)
        return tf.IndexedSlices(values, gather(slices.indices), slices.dense_shape)
