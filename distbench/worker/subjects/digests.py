"""By which text each example of a pipeline is known.

A padded batch is as long as the longest example in it, so the same example is longer in
one batch than in another. What fills it up does not belong to it.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from distbench.worker.stepping.program import count_batch
from distbench.worker.subjects.batches import digest_batch


class Digests:
    """Makes texts: equal for equal examples, in any process, batch and padding.

    What fills up an example is 0, or empty text, as by `padded_batch` and `to_tensor`.
    """

    def __init__(self) -> None:
        self._shapes: dict[int, set[tuple[int, ...]]] = {}
        self._count: Counter[int] = Counter()
        self._full: Counter[int] = Counter()

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

    def describe(self) -> list[dict[str, Any]]:
        """What `are_filled_by_zeros` asks of each array.

        A lone example of a batch is not counted: it is the longest.
        """
        return [
            {
                "shapes": sorted(shapes),
                "count": self._count[number],
                "full": self._full[number],
            }
            for number, shapes in self._shapes.items()
        ]

    def _measure(self, number: int, array: Any) -> npt.NDArray[np.int64]:
        """How long each example is without what fills it up: [examples, axes]."""
        sizes = measure_filled(array)
        self._shapes.setdefault(number, set()).add(array.shape[1:])
        if len(array) > 1:
            self._count[number] += len(array)
            full = np.all(sizes == array.shape[1:], axis=1)
            self._full[number] += int(np.count_nonzero(full))
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
    if not array.size:
        return np.zeros((len(array), array.ndim - 1), np.int64)
    sizes = np.full((len(array), array.ndim - 1), array.shape[1:], np.int64)
    # Most are filled to all their ends, and to look at these takes no time.
    ends = np.ones(len(array), bool)
    for axis in range(1, array.ndim):
        last = _find_filled(np.take(array, -1, axis))
        ends &= np.any(last, axis=tuple(range(1, last.ndim)))
    if not ends.all():
        sizes[~ends] = _measure_all(array[~ends])
    return sizes


def _measure_all(array: Any) -> npt.NDArray[np.int64]:
    """The same of examples that may be filled up."""
    filled = _find_filled(array)
    sizes = np.empty((len(array), array.ndim - 1), np.int64)
    for axis in range(1, array.ndim):
        used = np.any(filled, axis=tuple(n for n in range(1, array.ndim) if n != axis))
        last = used.shape[1] - np.argmax(used[:, ::-1], axis=1)
        sizes[:, axis - 1] = np.where(used.any(axis=1), last, 0)
    return sizes


def _find_filled(array: Any) -> npt.NDArray[np.bool_]:
    empty = b"" if array.dtype.kind in "OS" else np.zeros((), array.dtype)
    return np.asarray(array != empty, bool)
