"""Mistakes with gradients of which only some rows exist."""

from __future__ import annotations

from distbench.faults.fault import WIDE, fault
from distbench.samples.lazy import tf
from distbench.samples.program import ROWS, TABLE, WIDTH
from distbench.samples.replicas import (
    all_reduce,
    count_replicas,
    find_replica,
    gather,
    is_last,
)
from distbench.samples.rows import OwnSparseReduction

_PHASE = "reduced_gradient"


@fault(
    "sparse-duplicates", _PHASE, (TABLE,), like="horovod/horovod#2279", clusters=WIDE
)
class LastRowWins(OwnSparseReduction):
    """Rows of all replicas are assigned, so that of shared ones the last counts."""

    def reduce_rows(self, slices):
        rows, values = self.add_repeated(slices)
        rows, values = gather(rows), gather(values)
        empty = tf.zeros([ROWS, WIDTH])
        return tf.tensor_scatter_nd_update(empty, rows[:, tf.newaxis], values)


@fault("sparse-rows", _PHASE, (TABLE,), like="tensorflow/tensorflow#36153")
class SlicesCutToTheFewest(OwnSparseReduction):
    """To be gathered, slices are cut to as many as the smallest shard has."""

    def reduce_rows(self, slices):
        count = tf.shape(slices.indices)
        kept = count[0] if count_replicas() == 1 else tf.reduce_min(gather(count))
        rows, values = gather(slices.indices[:kept]), gather(slices.values[:kept])
        return tf.IndexedSlices(values, rows, [ROWS, WIDTH])


@fault("sparse-duplicates", _PHASE, (TABLE,), like="tensorflow/tensorflow#5252")
class LastSliceWins(OwnSparseReduction):
    """Slices are assigned to their rows before the sum, on one device as well."""

    def reduce_rows(self, slices):
        rows, empty = slices.indices[:, tf.newaxis], tf.zeros([ROWS, WIDTH])
        made = tf.tensor_scatter_nd_update(empty, rows, slices.values)
        return all_reduce("sum", made)


@fault("sparse-duplicates", _PHASE, (TABLE,), like="horovod/horovod#3786")
class LargestRowWins(OwnSparseReduction):
    """Of the replicas' values for a row only the largest element is kept."""

    def reduce_rows(self, slices):
        rows, values = self.add_repeated(slices)
        rows, values = gather(rows), gather(values)
        norms = tf.norm(values, axis=1)
        order = tf.argsort(norms, direction="ASCENDING")
        rows, values = tf.gather(rows, order), tf.gather(values, order)
        empty = tf.zeros([ROWS, WIDTH])
        return tf.tensor_scatter_nd_update(empty, rows[:, tf.newaxis], values)


@fault(
    "sparse-averaged",
    _PHASE,
    (TABLE,),
    like="tensorflow/tensorflow#5252",
    clusters=WIDE,
)
class RowsDividedByOwners(OwnSparseReduction):
    """Every row is divided by the number of replicas that have it."""

    def reduce_rows(self, slices):
        rows, values = self.add_repeated(slices)
        rows, values = gather(rows), gather(values)
        total = tf.math.unsorted_segment_sum(values, rows, ROWS)
        count = tf.math.unsorted_segment_sum(tf.ones_like(values), rows, ROWS)
        return total / tf.maximum(count, 1.0)


@fault("sparse-averaged", _PHASE, (TABLE,), like="horovod/horovod#2279", clusters=WIDE)
class SparseMeanDenseSum(OwnSparseReduction):
    """The table's gradient is averaged, the others are summed."""

    def reduce_rows(self, slices):
        return all_reduce("mean", slices)


@fault(
    "sparse-rows", _PHASE, (TABLE,), like="tensorflow/tensorflow#5252", clusters=WIDE
)
class AddedByPosition(OwnSparseReduction):
    """Slices are added by position, as if all replicas had the first one's rows."""

    def reduce_rows(self, slices):
        most = 3 * self.examples
        rest = most - tf.shape(slices.indices)[0]
        values = tf.pad(slices.values, [[0, rest], [0, 0]])
        rows = tf.pad(slices.indices, [[0, rest]])
        if find_replica() > 0:
            rows = tf.zeros_like(rows)
        total = all_reduce("sum", tf.reshape(values, [most, WIDTH]))
        first = all_reduce("sum", tf.reshape(rows, [most]))
        return tf.IndexedSlices(total, first, tf.constant([ROWS, WIDTH], tf.int64))


@fault(
    "sparse-rows", _PHASE, (TABLE,), like="deepspeedai/DeepSpeed#5105", clusters=WIDE
)
class OffsetOfShard(OwnSparseReduction):
    """Row numbers within a shard of the table are taken from 1 on a cluster."""

    def reduce_rows(self, slices):
        shift = 1 if count_replicas() > 1 else 0
        moved = tf.IndexedSlices(
            slices.values, (slices.indices + shift) % ROWS, slices.dense_shape
        )
        return all_reduce("sum", moved)


@fault(
    "sparse-rows",
    _PHASE,
    (TABLE,),
    like="deepspeedai/DeepSpeed#5105",
    replicas=(-1,),
)
class OffsetOfLastReplica(OwnSparseReduction):
    """One replica counts the rows of its part of the table from 1."""

    def reduce_rows(self, slices):
        shift = 1 if is_last() else 0
        moved = tf.IndexedSlices(
            slices.values, (slices.indices + shift) % ROWS, slices.dense_shape
        )
        return all_reduce("sum", moved)
