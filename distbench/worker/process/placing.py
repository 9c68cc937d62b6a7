"""Where the ops of one device go that is a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from distbench.worker.process.intercept import intercept


@contextmanager
def place_as_replica(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Inside, what the default strategy runs is placed as strategies place a replica.

    They say of each op that it belongs on the replica's GPU. Where nobody says so
    TensorFlow leaves some on the CPU, as what is made of whole numbers: the power in
    the rate that Adam corrects, or the sum of a row's repetitions, which round
    otherwise there.

    Args:
        strategy: The default one.
    """

    def run(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with tf.device("/gpu:0"):
            return original(*args, **kwargs)

    undo = intercept(strategy, "run", run)
    try:
        yield
    finally:
        undo()
