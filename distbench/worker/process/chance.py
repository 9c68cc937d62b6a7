"""Random numbers: seeded alike in all tasks, and apart where a job's would be."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.data.util import random_seed as data_seed
from tensorflow.python.eager import context
from tensorflow.python.framework import ops, random_seed

from distbench.worker.process.intercept import replace_attribute

_APART = 7919
"""Between the seeds of two processes: far enough not to meet those of other checks."""

Change = Callable[[Any, Any], Any]
"""What an op gets for the global part of its seed: of its own seed and that part."""


class _BenchSeed(int):
    """A global seed that the bench has set: the user may choose the same number."""


def seed_chance(seed: int) -> None:
    """Seed every generator of random numbers that user code finds without asking."""
    random.seed(seed)
    np.random.seed(seed)  # the generator of old code is meant
    tf.random.set_seed(_BenchSeed(seed))


@contextmanager
def draw_apart(seed: int, number: int) -> Iterator[None]:
    """Inside, chance is another one for each number, unless the user has seeded it.

    An op with a seed of its own draws alike in all processes, as it does where nobody
    has set the global one.

    Args:
        seed: What the bench gave to `seed_chance`.
        number: Of the process.
    """
    if not _is_unseeded():
        yield
        return
    apart = seed + number * _APART
    seed_chance(apart)

    def change(op_seed: Any, first: Any) -> Any:
        alike = op_seed is not None and _is_unseeded()
        return seed if alike else first

    try:
        with _change_seeds(random_seed, change):
            yield
    finally:
        seed_chance(seed)


@contextmanager
def trace_apart(seed: int, number: int) -> Iterator[None]:
    """Inside, ops without a seed draw otherwise in each process than in the first.

    So they do where nobody has set the global one. What draws between two steps is left
    alone, as what makes their batches, of which all processes must make the same ones.

    Args:
        seed: What the bench gave to `seed_chance`.
        number: Of the process.
    """
    if number == 0 or not _is_unseeded():
        yield
        return

    def change(op_seed: Any, first: Any) -> Any:
        is_own = op_seed is None and _is_unseeded()
        return seed + number * _APART if is_own else first

    with _change_seeds(random_seed, change):
        yield


@contextmanager
def draw_apart_by_worker() -> Iterator[None]:
    """Inside, the data sets of a coordinator draw otherwise on each of its workers.

    The chief traces once for all of them what makes these, with a seed of its own.
    Where nobody has set the global one, an op without a seed draws otherwise on each.
    """
    if not _is_unseeded():
        yield
        return

    def change(op_seed: Any, first: Any) -> Any:
        # Only what the chief traces runs on workers.
        if op_seed is not None or tf.executing_eagerly():
            return first
        worker = tf.distribute.coordinator.experimental_get_current_worker_index()
        return first + tf.cast(worker, first.dtype) * _APART

    with _change_seeds(data_seed, change):
        yield


def _is_unseeded() -> bool:
    """Whether the global seed of what is run or traced now is none of the user's."""
    is_eager = tf.executing_eagerly()
    seed = context.global_seed() if is_eager else ops.get_default_graph().seed
    return isinstance(seed, _BenchSeed)


@contextmanager
def _change_seeds(module: Any, change: Change) -> Iterator[None]:
    """Inside, ops whose seeds a module of TensorFlow gives get others from it."""
    get_seed = module.get_seed

    def get_own_seed(op_seed: Any) -> tuple[Any, Any]:
        first, second = get_seed(op_seed)
        return change(op_seed, first), second

    with replace_attribute(module, "get_seed", get_own_seed):
        yield
