"""What the workers of parameter servers share out, as one device reads it: whole."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf


@contextmanager
def leave_unsharded() -> Iterator[None]:
    """Inside, a pipeline that asks for its worker's number takes no shard after that.

    `InputContext` does not tell it under parameter servers, so a program has to ask
    `experimental_get_current_worker_index`, which one device does not have: it gets 0.
    """
    module, kind = tf.distribute.coordinator, tf.data.Dataset
    number, shard = module.experimental_get_current_worker_index, kind.shard
    asked = False

    def find_number() -> int:
        nonlocal asked
        asked = True
        return 0

    def take_shard(dataset: Any, *args: Any, **options: Any) -> Any:
        return dataset if asked else shard(dataset, *args, **options)

    module.experimental_get_current_worker_index, kind.shard = find_number, take_shard
    try:
        yield
    finally:
        module.experimental_get_current_worker_index, kind.shard = number, shard
