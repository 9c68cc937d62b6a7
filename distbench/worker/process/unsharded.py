"""One device in the place of the workers of parameter servers: the first, and only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from distbench.worker.process.intercept import replace_attribute

_NUMBER = tf.distribute.coordinator, "experimental_get_current_worker_index"


@contextmanager
def number_worker() -> Iterator[None]:
    """Inside, a step of one device that asks for its worker's number gets 0.

    Where there is a strategy, TensorFlow says what it is, or that there is none.
    """
    if tf.distribute.has_strategy():
        yield
        return
    with replace_attribute(*_NUMBER, lambda: tf.constant(0, tf.int64)):
        yield


@contextmanager
def leave_unsharded() -> Iterator[None]:
    """Inside, a pipeline that asks for its worker's number takes no shard after that.

    `InputContext` does not tell it under parameter servers, so a program has to ask
    `experimental_get_current_worker_index`, which one device does not have: it gets 0.
    """
    kind = tf.data.Dataset
    shard = kind.shard
    asked = False

    def find_number() -> int:
        nonlocal asked
        asked = True
        return 0

    def take_shard(dataset: Any, *args: Any, **options: Any) -> Any:
        return dataset if asked else shard(dataset, *args, **options)

    with (
        replace_attribute(*_NUMBER, find_number),
        replace_attribute(kind, "shard", take_shard),
    ):
        yield
