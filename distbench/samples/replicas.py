"""What users ask of `tf.distribute`, in words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from distbench.samples.lazy import tf


def count_replicas() -> int:
    """Number of replicas, N; 1 without a strategy."""
    return int(tf.distribute.get_strategy().num_replicas_in_sync)


def take_share(values: Any, examples: int) -> Any:
    """A mean over the global batch, or of that what the replica's own values make.

    Args:
        values: One for each example: [n].
        examples: Size of the global batch, G.
    """
    if count_replicas() == 1:
        return tf.reduce_mean(values)
    return tf.reduce_mean(values) * (tf.cast(tf.size(values), values.dtype) / examples)


def make_own_zeros(variables: Iterable[Any]) -> list[Any]:
    """For each variable a buffer like it, which every replica has for itself."""
    return [
        tf.Variable(
            tf.zeros_like(variable),
            trainable=False,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.MEAN,
        )
        for variable in variables
    ]


def make_zeros(variables: Iterable[Any], name: str, aggregation: str) -> list[Any]:
    """For each variable a buffer like it, of which all replicas have the same one.

    Args:
        variables: What to make them like.
        name: Theirs, before a number.
        aggregation: What comes of what the replicas assign, such as `SUM`.
    """
    return [
        tf.Variable(
            tf.zeros(variable.shape, variable.dtype),
            name=f"{name}{place}",
            trainable=False,
            aggregation=getattr(tf.VariableAggregation, aggregation),
        )
        for place, variable in enumerate(variables)
    ]


def pass_through(queue: Iterable[Sequence[Any]], gradients: Iterable[Any]) -> list[Any]:
    """Put dense gradients into the first buffers of a queue, whose own move on.

    Args:
        queue: Buffers, as of `make_own_zeros`, for each step that gradients wait.
        gradients: Those of this step.

    Returns:
        What the last buffers held.
    """
    gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
    for buffers in queue:
        before = [tf.identity(variable) for variable in buffers]
        for variable, gradient in zip(buffers, gradients, strict=True):
            variable.assign(gradient)
        gradients = before
    return gradients


def find_replica() -> int:
    """Global number of the replica whose step is being traced."""
    context = tf.distribute.get_replica_context()
    return int(tf.get_static_value(context.replica_id_in_sync_group) or 0)


def is_last() -> bool:
    """Whether it is the last of several replicas."""
    return find_replica() == count_replicas() - 1 > 0


def clear_last(gradients: Iterable[Any]) -> list[Any]:
    """Dense gradients, which on the last of several replicas are 0."""
    dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
    return [0.0 * gradient for gradient in dense] if is_last() else dense


def find_copy(variable: Any) -> int:
    """Global number of the replica whose copy of a variable is being updated."""
    resolver = tf.distribute.get_strategy().cluster_resolver
    if resolver is not None and resolver.task_type == "worker":
        return int(resolver.task_id)
    found = re.search(r"/replica_(\d+)", variable.name)
    return int(found[1]) if found else 0


def all_reduce(operation: str, values: Any) -> Any:
    """Sum or mean over the replicas."""
    return tf.distribute.get_replica_context().all_reduce(operation, values)


def gather(value: Any) -> Any:
    """Values of all replicas, joined along the first axis."""
    return tf.distribute.get_replica_context().all_gather(value, axis=0)


def gather_each(value: Any) -> list[Any]:
    """The value of each replica; they may differ in length."""
    counts = gather(tf.shape(value)[:1])
    return list(tf.split(gather(value), counts, num=count_replicas()))


def change_joined(tensors: Sequence[Any], change: Callable[[Any], Any]) -> list[Any]:
    """Tensors that lie in one buffer while it is changed, and are cut out of it again.

    Args:
        tensors: Dense ones, of known shapes.
        change: Of the flat buffer: to one of the same size.
    """
    flat = change(tf.concat([tf.reshape(t, [-1]) for t in tensors], axis=0))
    pieces = tf.split(flat, [t.shape.num_elements() for t in tensors])
    return [tf.reshape(p, t.shape) for p, t in zip(pieces, tensors, strict=True)]


def update(variable: Any, change: Callable[..., Any], *values: Any) -> None:
    """Change every copy of a variable by `change(copy, *values)`."""

    def merge(strategy: Any, variable: Any, *values: Any) -> None:
        strategy.extended.update(variable, change, args=values)

    tf.distribute.get_replica_context().merge_call(merge, args=(variable, *values))
