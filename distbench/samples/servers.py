"""What user code does under parameter servers, and how long it takes."""

from __future__ import annotations

from typing import Any

from distbench.samples.lazy import tf

_LONG_S = 0.05
"""As long as a step of a large model, and much longer than one of these programs."""


def is_served() -> bool:
    """Whether parameter servers hold the variables."""
    kind = tf.distribute.ParameterServerStrategy
    return isinstance(tf.distribute.get_strategy(), kind)


def count_workers() -> int:
    """Number of workers of parameter servers; 1 without any."""
    if not is_served():
        return 1
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    return int(resolver.cluster_spec().num_tasks("worker"))


def find_worker() -> Any:
    """Number of the worker that takes the step; 0 without parameter servers."""
    if not is_served():
        return tf.constant(0)
    return tf.distribute.coordinator.experimental_get_current_worker_index()


def linger(value: Any) -> Any:
    """The value, after a while: under parameter servers others may write meanwhile."""
    if not is_served():
        return value
    with tf.control_dependencies([value]):
        begun = tf.timestamp()
    now = tf.while_loop(
        lambda now: now < begun + _LONG_S, lambda _: (tf.timestamp(),), (begun,)
    )
    with tf.control_dependencies(now):
        return tf.identity(value)


class OwnNumber:
    """A number that each worker has for itself, in its own memory.

    Args:
        name: Two of the same name are the same number.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def add(self, more: Any) -> Any:
        """Add to it, in the graph of a step; returns the sum."""
        handle = tf.raw_ops.VarHandleOp(
            dtype=tf.int64, shape=[], shared_name=self._name, container=""
        )
        before = tf.cond(
            tf.raw_ops.VarIsInitializedOp(resource=handle),
            lambda: tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.int64),
            lambda: tf.constant(0, tf.int64),
        )
        after = before + tf.cast(more, tf.int64)
        with tf.control_dependencies([before]):
            stored = tf.raw_ops.AssignVariableOp(resource=handle, value=after)
        with tf.control_dependencies([stored]):
            return tf.identity(after)
