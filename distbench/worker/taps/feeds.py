"""Feeds: values from outside that a step takes in the place of its own.

A feed is a variable like a sink, read inside the user's graph and written before a step
runs, so that one trace of the step takes other values each time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from distbench.trace import Phase, SparseRows, Value
from distbench.worker.taps.sinks import create_sink

Place = tuple[int, Phase, str]
"""Where a value goes: call, phase and variable."""
Dtypes = tuple[tf.DType, ...]
"""Those of what a tap takes or keeps: a dense value, or rows and values of slices.

One trace may have slices where another has none, and each has variables of its own.
"""
ByPlace = dict[Place, Value]
"""What to put in the places of what flows past."""


class Feeds:
    """The feeds of one task.

    Args:
        device: Where they live, such as `/job:chief/cpu:0`.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._feeds: dict[tuple[Place, Dtypes], tuple[Any, ...]] = {}

    def read(self, place: Place, given: Value, dtype: tf.DType) -> Any:
        """What the graph takes at a place; the feed comes into being with the trace.

        Args:
            place: Where.
            given: What is fed while the step is traced: later values are like it.
            dtype: Dtype of what flows past.
        """
        is_sparse = isinstance(given, SparseRows)
        kind = (tf.int64, dtype) if is_sparse else (dtype,)
        if (place, kind) not in self._feeds:
            self._feeds[place, kind] = tuple(create_sink(d, self._device) for d in kind)
        feeds = self._feeds[place, kind]
        if not is_sparse:
            return tf.ensure_shape(feeds[0].read_value(), given.shape)
        shape = tf.constant(given.shape, tf.int64)
        rows = tf.ensure_shape(feeds[1].read_value(), [None, *given.shape[1:]])
        indices = tf.ensure_shape(feeds[0].read_value(), [None])
        return tf.IndexedSlices(rows, indices, shape)

    def write(self, fed: ByPlace) -> None:
        """Have the next step take these values.

        Feeds of other traces may be for updates that this step does not make, or for
        slices where this one takes none.
        """
        for (place, _), feeds in self._feeds.items():
            given = fed.get(place)
            if given is None:
                continue
            arrays = (
                (given.indices, given.values)
                if isinstance(given, SparseRows)
                else (given,)
            )
            if len(arrays) == len(feeds):
                for feed, array in zip(feeds, arrays, strict=True):
                    feed.assign(tf.cast(array, feed.dtype))

    def rename(self, paths: Mapping[str, str]) -> None:
        """Take what is fed for variables by other paths from now on."""
        self._feeds = {
            ((call, phase, paths.get(path, path)), kind): feeds
            for ((call, phase, path), kind), feeds in self._feeds.items()
        }

    @property
    def variables(self) -> set[int]:
        """Identities of the feeds' variables."""
        return {id(feed) for feeds in self._feeds.values() for feed in feeds}
