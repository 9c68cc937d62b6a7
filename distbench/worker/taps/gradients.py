"""Gradients that are changed in a graph: dense ones, and slices of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def map_numbers(gradient: Any, change: Callable[[tf.Tensor], tf.Tensor]) -> Any:
    """A gradient with other numbers; those of slices stay in their rows."""
    if not isinstance(gradient, tf.IndexedSlices):
        return change(gradient)
    values = change(gradient.values)
    return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)


def multiply(numbers: tf.Tensor, factor: float) -> tf.Tensor:
    """Numbers times a factor, which itself may be too large for half precision."""
    wide = tf.float32 if numbers.dtype.size < 4 else numbers.dtype
    return tf.cast(tf.cast(factor, wide) * tf.cast(numbers, wide), numbers.dtype)
