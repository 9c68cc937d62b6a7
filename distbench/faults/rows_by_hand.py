"""Mistakes with the gathered rows of a table that a program updates by hand."""

from __future__ import annotations

from distbench.faults.fault import fault
from distbench.samples.lazy import tf
from distbench.samples.program import ROWS, Program
from distbench.samples.replicas import count_replicas, update
from distbench.unusual.rows_by_hand import GatheredRowsByHand as _GatheredRowsByHand
from distbench.unusual.rows_by_hand import RowsSharedOut as _RowsSharedOut

_CLUSTERS = ("mirrored:4", "mwms:4")  # each of two replicas has all rows


@fault(
    "sparse-duplicates",
    "slot",
    ("squares",),
    like="tensorflow/tensorflow#5252",
    clusters=_CLUSTERS,
)
class GatheredRowsTakenForUnique(_GatheredRowsByHand):
    """Rows are unique on each replica, and taken for that once they are gathered."""

    def join(self, rows, values):
        return rows, values


@fault(
    "sparse-averaged",
    "slot",
    ("squares",),
    like="tensorflow/tensorflow#5252",
    clusters=_CLUSTERS,
)
class GatheredRowsAveraged(_GatheredRowsByHand):
    """Each row is divided by the number of replicas that have it."""

    def join(self, rows, values):
        joined, place, counts = tf.unique_with_counts(rows)
        total = tf.math.unsorted_segment_sum(values, place, tf.size(joined))
        return joined, total / tf.cast(counts, total.dtype)[:, tf.newaxis]


@fault(
    "sparse-rows",
    "variable",
    ("table",),
    like="deepspeedai/DeepSpeed#5105",
    clusters=_CLUSTERS,
)
class RowsOfNobody(_RowsSharedOut):
    """Each replica has as many rows as fit N times, and the rest is nobody's."""

    def count_rows(self, replicas):
        return (ROWS - 1) // replicas


@fault(
    "sparse-rows",
    "variable",
    ("table",),
    like="deepspeedai/DeepSpeed#5105",
    clusters=_CLUSTERS,
)
class RowsOfNobodyInSecondCall(Program):
    """The table's turn comes after all others', and some of its rows are nobody's."""

    def apply(self, gradients):
        pairs = list(zip(gradients, self.trained(), strict=True))
        self._optimizer.apply_gradients(pairs[1:])
        before = tf.identity(self.table)
        self._optimizer.apply_gradients(pairs[:1])
        shared = (ROWS - 1) // count_replicas() * count_replicas()
        rest = (tf.range(ROWS) >= shared)[:, tf.newaxis]
        update(self.table, lambda copy: copy.assign(tf.where(rest, before, copy)))
