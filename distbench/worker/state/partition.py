"""Variables in shards, which TensorFlow cuts on servers and the bench on one device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import tensorflow as tf

from distbench.errors import BadInputError
from distbench.partitioner import parse_partitioner


def make_partitioner(text: str) -> Any:
    """TensorFlow's partitioner of that name; None for an empty text."""
    if not text:
        return None
    kind, numbers = parse_partitioner(text)
    partitioners = tf.distribute.experimental.partitioners
    if kind == "fixed":
        return partitioners.FixedShardsPartitioner(*numbers)
    if kind == "min":
        return partitioners.MinSizePartitioner(*numbers)
    return partitioners.MaxSizePartitioner(*numbers)


@contextmanager
def shard_variables(text: str) -> Iterator[None]:
    """Inside, variables come into being in the shards that a strategy would make.

    As `ParameterServerStrategyV2Extended._create_variable` does it: the first axis is
    cut, the first shards have a row more where it does not divide, and what is to lie
    beside another variable, as a slot does, stays whole. What has no name gets one
    here: tf_keras' legacy optimizers cannot tell the slots of shards without a name
    apart, and what they do of it on a cluster is no fault of one device.

    Args:
        text: A partitioner; empty leaves variables alone.
    """
    partitioner = make_partitioner(text)
    if partitioner is None:
        yield
        return

    def create(next_creator: Any, **options: Any) -> Any:
        initial = options.get("initial_value")
        is_beside = options.pop("colocate_with", None) is not None
        if is_beside or initial is None:
            return next_creator(**options)
        shape, dtype = options.get("shape"), options.get("dtype")
        if not callable(initial) or shape is None or dtype is None:
            whole = initial() if callable(initial) else initial
            initial = tf.convert_to_tensor(whole, dtype)
            shape, dtype = initial.shape, initial.dtype
        shape = tf.TensorShape(shape)
        count = min(partitioner(shape, dtype)[0], shape[0]) if shape.rank else 1
        if count == 0:
            raise BadInputError(
                f"Variable '{options.get('name') or 'Variable'}' must have a row for "
                f"the partitioner '{text}', which TensorFlow has cut it. Received: the "
                f"shape {tuple(shape)}. Leave the partitioner out, or the variable."
            )
        if count == 1:
            return next_creator(**{**options, "initial_value": initial})
        rows, more = divmod(int(shape[0]), int(count))
        shards, offset = [], 0
        for number in range(count):
            size = rows + (number < more)
            part = _make_part(initial, offset, (size, *shape[1:]))
            offset += size
            chosen = {**options, "initial_value": part, "shape": part.shape}
            chosen["name"] = f"{options.get('name') or 'Variable'}/part_{number}"
            shards.append(next_creator(**chosen))
        return tf.__internal__.distribute.ShardedVariable(shards)

    # One device has no place beside another: its strategy does not pass on which.
    extended = tf.distribute.get_strategy().extended
    extended.colocate_vars_with = partial(_tell_place, extended.colocate_vars_with)
    try:
        with tf.variable_creator_scope(create):
            yield
    finally:
        del extended.colocate_vars_with


def _make_part(initial: Any, offset: int, shape: tuple[int, ...]) -> Any:
    """What a shard starts with, of a value or of what makes one.

    An initializer may make each shard by itself, and a random one then draws other
    numbers than for a whole: so it does where a strategy asks it.
    """
    rows = slice(offset, offset + shape[0])
    if not callable(initial):
        return initial[rows]
    offsets = (offset, *(0 for _ in shape[1:]))
    try:
        value = initial(partition_shape=shape, partition_offset=offsets)
    except (TypeError, ValueError):
        value = initial()
    return value if tuple(value.shape) == shape else value[rows]


@contextmanager
def _tell_place(original: Any, beside: Any) -> Iterator[None]:
    """Pass on to creators what a variable is to lie beside, as other strategies do."""

    def create(next_creator: Any, **options: Any) -> Any:
        return next_creator(**{**options, "colocate_with": beside})

    with original(beside), tf.variable_creator_scope(create):
        yield
