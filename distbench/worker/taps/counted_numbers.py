"""Random numbers by counting: each is a function of its key and of its place alone.

What TensorFlow draws depends on the shape of all that it draws at once, so the rows of
a shard are not those of the batch that it was cut from. These are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

_STEP = 0x9E3779B97F4A7C15
"""Odd, and near 2^64 over the golden ratio: its multiples lie far apart."""
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_DIGITS = {tf.float16: 11, tf.bfloat16: 8, tf.float32: 24, tf.float64: 53}
_COARSE = 1024.0
"""Normal numbers are multiples of its inverse: so they are the same, in all bits, by
whichever of a kernel's loops they are computed."""


def count_numbers(axes: Sequence[Any], stream: Any) -> Any:
    """Numbers that look like random ones: uint64, with an axis for each that is given.

    Each is a chain of SplitMix64's finalizers (Steele, Lea, Flood 2014, "Fast
    splittable pseudorandom number generators") over the stream and its place on every
    axis.

    Args:
        axes: What stands for the places of each axis, uint64 [n].
        stream: uint64, a scalar.
    """
    numbers = _mix(stream)
    for axis in axes:
        places = _mix(axis * tf.constant(_STEP, tf.uint64))
        numbers = _mix(tf.bitwise.bitwise_xor(numbers[..., None], places))
    return numbers


def _mix(value: Any) -> Any:
    for shift, factor in ((30, _FIRST), (27, _SECOND)):
        value = _fold(value, shift) * tf.constant(factor, tf.uint64)
    return _fold(value, 31)


def _fold(value: Any, shift: int) -> Any:
    moved = tf.bitwise.right_shift(value, tf.constant(shift, tf.uint64))
    return tf.bitwise.bitwise_xor(value, moved)


def make_uniform(numbers: Any, dtype: tf.DType) -> Any:
    """Numbers from 0 to less than 1, each of them one that the dtype has."""
    digits = _DIGITS[dtype]
    kept = tf.bitwise.right_shift(numbers, tf.constant(64 - digits, tf.uint64))
    wide = tf.float64 if dtype == tf.float64 else tf.float32
    return tf.cast(tf.cast(kept, wide) * 2.0**-digits, dtype)


def make_normal(numbers: Any, dtype: tf.DType, *, limit: float = 0.0) -> Any:
    """Numbers of mean 0 and deviation 1; none beyond a limit that is not 0."""
    wide = tf.float64 if dtype == tf.float64 else tf.float32
    uniform = make_uniform(numbers, tf.float32)
    # From half a step above 0 to half a step below 1: both ends would be infinite.
    uniform = tf.cast(uniform, tf.float64) + 2.0**-25
    if limit:
        below = tf.cast(0.5 * tf.math.erfc(limit / 2.0**0.5), tf.float64)
        uniform = below + uniform * (1.0 - 2.0 * below)
    found = tf.math.round(tf.math.ndtri(uniform) * _COARSE) / _COARSE
    return tf.cast(tf.cast(found, wide), dtype)


def make_between(numbers: Any, low: Any, high: Any, dtype: tf.DType) -> Any:
    """Whole numbers of a dtype from a lowest one to less than a highest."""
    low, high = tf.cast(low, dtype), tf.cast(high, dtype)
    span = tf.maximum(tf.cast(high - low, tf.uint64), tf.constant(1, tf.uint64))
    return low + tf.cast(tf.math.floormod(numbers, span), dtype)
