"""Digests of tensors, made where they are computed: to tell whether bits are the same.

What one costs is to read the numbers once, in the step; the numbers themselves would
have to go to disk after it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from distbench.worker.taps.reach import is_in_reach

_COPIES = ("Identity", "IdentityN", "Reshape")
"""Ops whose first outputs have the bytes of their first inputs, and so on."""


def digest_component(component: Any) -> npt.NDArray[np.generic]:
    """The digest of a plain variable's value: uint8 [8]."""
    dtype = component.dtype.base_dtype
    value = tf.raw_ops.ReadVariableOp(resource=component.handle, dtype=dtype)
    return np.asarray(_digest(value)._numpy())[0]


class Digests:
    """Digests of what the replicas of a task compute, each made once in a trace.

    Most values come by at several phases: what nothing clips is applied as it was
    reduced.
    """

    def __init__(self) -> None:
        # The tensors are kept as well, so that no other one gets their identity.
        self._made: dict[int, dict[int, tuple[Any, tf.Tensor]]] = {}

    def forget(self, replica: int) -> None:
        """Drop what was made for a replica: another trace begins."""
        self._made.pop(replica, None)

    def digest(self, replica: int, tensors: tuple[Any, ...]) -> tf.Tensor:
        """64 bits for each tensor, as bytes: uint8 [8 n]."""
        digests = [self._digest_once(replica, tensor) for tensor in tensors]
        return tf.reshape(tf.concat(digests, axis=0), [-1])

    def _digest_once(self, replica: int, tensor: Any) -> tf.Tensor:
        if tf.executing_eagerly():
            return _digest(tensor)  # to remember it would keep its memory
        source = _find_source(tensor)
        made = self._made.setdefault(replica, {})
        _, digest = made.get(id(source), (None, None))
        if digest is None or not is_in_reach(digest):
            digest = _digest(tensor)
            made[id(source)] = source, digest
        return digest


def _find_source(tensor: Any) -> Any:
    """The symbolic tensor that one is a copy of, on the same device, or itself."""
    while (op := getattr(tensor, "op", None)) is not None and op.type in _COPIES:
        copied = op.inputs[tensor.value_index]
        if copied.device != tensor.device:
            break  # what a transfer brings is seen by itself
        tensor = copied
    return tensor


def _digest(tensor: Any) -> tf.Tensor:
    """One row, uint8 [1, 8], of all bytes of a tensor."""
    # Op by op, what is nicer to call takes five times as long as a small digest.
    with tf.device("/device:CPU:0"):
        row = tf.raw_ops.ExpandDims(input=tensor, axis=0)
        return tf.raw_ops.Fingerprint(data=row, method="farmhash64")
