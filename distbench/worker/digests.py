"""Digests of tensors, made where they are computed: to tell whether bits are the same.

What one costs is to read the numbers once, in the step; the numbers themselves would
have to go to disk after it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf


def digest_tensors(tensors: tuple[Any, ...]) -> tf.Tensor:
    """64 bits for each tensor, as bytes: uint8 [8 n]."""
    with tf.device("/device:CPU:0"):
        return tf.concat([_digest(tensor) for tensor in tensors], axis=0)


def digest_component(component: Any) -> npt.NDArray[np.generic]:
    """The digest of a plain variable's value: uint8 [8]."""
    dtype = component.dtype.base_dtype
    value = tf.raw_ops.ReadVariableOp(resource=component.handle, dtype=dtype)
    return np.asarray(digest_tensors((value,)).numpy())


def _digest(tensor: Any) -> tf.Tensor:
    row = tf.reshape(tensor, [1, tf.size(tensor)])
    return tf.fingerprint(row, method="farmhash64")[0]
