"""Feeds: values from outside that a step takes in the place of its own.

A feed is a variable like a sink, read inside the user's graph and written before a step
runs, so that one trace of the step takes other values each time.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from distbench.trace import Phase, SparseRows, Value
from distbench.worker.taps.sinks import create_sink

Place = tuple[int, Phase, str]
"""Where a value goes: call, phase and variable."""
Fed = dict[Place, Value]
"""What to put in the place of what flows past."""


class Feeds:
    """The feeds of one task.

    Args:
        device: Where they live, such as `/job:chief/cpu:0`.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._feeds: dict[Place, tuple[Any, ...]] = {}

    def read(self, place: Place, given: Value, dtype: tf.DType) -> Any:
        """What the graph takes at a place; the feed comes into being with the trace.

        Args:
            place: Where.
            given: What is fed while the step is traced: later values are like it.
            dtype: Dtype of what flows past.
        """
        if place not in self._feeds:
            is_sparse = isinstance(given, SparseRows)
            dtypes = (tf.int64, dtype) if is_sparse else (dtype,)
            self._feeds[place] = tuple(create_sink(d, self._device) for d in dtypes)
        feeds = self._feeds[place]
        if len(feeds) == 1:
            return tf.ensure_shape(feeds[0].read_value(), given.shape)
        shape = tf.constant(given.shape, tf.int64)
        rows = tf.ensure_shape(feeds[1].read_value(), [None, *given.shape[1:]])
        indices = tf.ensure_shape(feeds[0].read_value(), [None])
        return tf.IndexedSlices(rows, indices, shape)

    def write(self, fed: Fed) -> None:
        """Have the next step take these values.

        Feeds of other traces may be for updates that this step does not make.
        """
        for place in self._feeds.keys() & fed.keys():
            feeds, given = self._feeds[place], fed[place]
            arrays = (
                (given.indices, given.values)
                if isinstance(given, SparseRows)
                else (given,)
            )
            for feed, array in zip(feeds, arrays, strict=True):
                feed.assign(tf.cast(array, feed.dtype))

    def forget(self) -> None:
        """Drop all feeds: what was traced with them is not used any more."""
        self._feeds.clear()

    @property
    def variables(self) -> set[int]:
        """Identities of the feeds' variables."""
        return {id(feed) for feeds in self._feeds.values() for feed in feeds}
