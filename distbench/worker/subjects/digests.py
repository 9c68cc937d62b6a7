"""By which text each example of a pipeline is known.

A padded batch is as long as the longest example in it, so the same example is longer in
one batch than in another. What fills it up does not belong to it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from distbench.worker.stepping.program import count_batch
from distbench.worker.subjects.batches import digest_batch

_FULL = 0.75
"""Of the examples in padded batches fewer are as long as the longest of their batch."""


class Digests:
    """Makes texts: equal for equal examples, in any process, batch and padding.

    What fills up an example is 0, or empty text, as by `padded_batch` and `to_tensor`;
    whoever chose something else is found out by it.
    """

    def __init__(self) -> None:
        self._shapes: dict[int, set[tuple[int, ...]]] = {}
        self._full: dict[int, list[int]] = {}

    def make(self, batch: Any) -> tuple[str, ...]:
        """A text for each example of a batch, a nest of NumPy arrays."""
        count, arrays = count_batch(batch), tf.nest.flatten(batch)
        sizes = [self._measure(number, array) for number, array in enumerate(arrays)]
        return tuple(
            digest_batch(
                [
                    _take(array, row, own[row])
                    for array, own in zip(arrays, sizes, strict=True)
                ]
            )
            for row in range(count)
        )

    @property
    def are_sure(self) -> bool:
        """Whether no array is filled up by other values, as far as can be seen.

        Those would make equal examples of batches of other lengths differ.
        """
        return not any(
            len(self._shapes[number]) > 1 and sum(full) > _FULL * len(full)
            for number, full in self._full.items()
        )

    def _measure(self, number: int, array: Any) -> npt.NDArray[np.int64]:
        """How long each example is without what fills it up: [examples, axes]."""
        sizes = measure_filled(array)
        self._shapes.setdefault(number, set()).add(array.shape[1:])
        if len(array) > 1:  # a lone one is the longest
            full = np.all(sizes == array.shape[1:], axis=1)
            self._full.setdefault(number, []).extend(full.tolist())
        return sizes


def _take(array: Any, row: int, size: npt.NDArray[np.int64]) -> Any:
    place = (row, *map(slice, size))
    return array[place]


def measure_filled(array: Any) -> npt.NDArray[np.int64]:
    """Up to where each example has another value than 0, or empty text.

    Args:
        array: NumPy array [examples, ...].

    Returns:
        By example, for each of its axes: [examples, axes].
    """
    empty = b"" if array.dtype.kind in "OS" else np.zeros((), array.dtype)
    filled = np.asarray(array != empty, bool)
    sizes = np.empty((len(array), array.ndim - 1), np.int64)
    for axis in range(1, array.ndim):
        others = tuple(n for n in range(1, array.ndim) if n != axis)
        # Of an axis without any element the first one is none.
        used = np.pad(filled.any(axis=others), ((0, 0), (1, 0)), constant_values=True)
        sizes[:, axis - 1] = used.shape[1] - 1 - np.argmax(used[:, ::-1], axis=1)
    return sizes
