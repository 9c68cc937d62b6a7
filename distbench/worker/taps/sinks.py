"""Sinks: the variables in which taps keep what flows past them.

A sink is a plain resource variable, built directly so that no strategy's creator sees
it (it takes no collective key and is never mirrored), and assigned inside the user's
graph. It survives inner functions, conditionals and loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.ops.resource_variable_ops import ResourceVariable

from distbench.worker.state.components import read_component

_EMPTY = (0,) * 7
"""Shape of a sink that nothing was written to: that of no loss and no gradient."""


def create_sink(dtype: tf.DType, device: str) -> Any:
    """A sink with nothing in it, which takes values of any shape.

    Args:
        dtype: Dtype of the values.
        device: Where it lives, such as `/job:chief/cpu:0`.
    """
    with tf.init_scope(), tf.device(device):
        return ResourceVariable(
            _make_empty(dtype),
            shape=tf.TensorShape(None),
            validate_shape=False,
            trainable=False,
            # What is made anew in each scope is another op to TensorFlow, and the
            # first run of one takes a millisecond.
            name="distbench_tap/",
        )


def empty_sink(sink: Any) -> None:
    """Leave a sink as if nothing had been written to it."""
    empty = _make_empty(sink.dtype)
    tf.raw_ops.AssignVariableOp(resource=sink.handle, value=empty)


def take_out(sinks: Sequence[Any]) -> list[np.ndarray]:
    """What was written to all sinks of a tap; leaves them empty.

    Returns:
        An array for each, of the shape and dtype that it was written with; none where
        nothing was.
    """
    arrays = [read_component(sink) for sink in sinks]
    if arrays[0].shape == _EMPTY:
        return []
    for sink in sinks:
        empty_sink(sink)
    return arrays


def keep_from_xla() -> AbstractContextManager[Any]:
    """A scope whose ops XLA leaves alone; op by op it compiles nothing anyway.

    XLA cannot assign a variable whose shape is not fixed; what is assigned then
    becomes an output of one of its clusters.
    """
    if tf.executing_eagerly():
        return nullcontext()
    return tf.xla.experimental.jit_scope(compile_ops=False)


def _make_empty(dtype: tf.DType) -> tf.Tensor:
    # Asked for at every tap after every step.
    return _keep_empty(dtype) if tf.executing_eagerly() else tf.zeros(_EMPTY, dtype)


@cache
def _keep_empty(dtype: tf.DType) -> tf.Tensor:
    # Op by op, an op of a kind that has not run yet takes milliseconds: `Fill`, say.
    return tf.constant(np.zeros(_EMPTY, dtype.as_numpy_dtype))
