"""What is done to the slices of a sparse gradient."""

from __future__ import annotations

from typing import Any

from distbench.samples.lazy import tf


def add_up_rows(slices: Any) -> Any:
    """A sparse gradient with each row once; any other as it is."""
    if not isinstance(slices, tf.IndexedSlices):
        return slices
    rows, place = tf.unique(slices.indices)
    values = tf.math.unsorted_segment_sum(slices.values, place, tf.size(rows))
    return tf.IndexedSlices(values, rows, slices.dense_shape)
