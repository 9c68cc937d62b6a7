"""What replicas hand over to be added up, and their sum in float64.

Those of a large model are many times as large as the model: they stay in the dtype in
which they were recorded, and are widened one at a time, or in blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
import numpy.typing as npt

from distbench.compare.arrays.aligned import Number, align_value
from distbench.trace import SparseRows, Value
from distbench.trace.numbers import Array


class Widened(Sequence[Array]):
    """Arrays that become float64 whenever they are asked for.

    Args:
        arrays: In any dtype that float64 holds.
    """

    def __init__(self, arrays: Sequence[npt.NDArray[np.generic]]) -> None:
        self._arrays = tuple(arrays)

    @overload
    def __getitem__(self, place: int) -> Array: ...
    @overload
    def __getitem__(self, place: slice) -> Widened: ...
    def __getitem__(self, place: int | slice) -> Array | Widened:
        if isinstance(place, slice):
            return Widened(self._arrays[place])
        return np.asarray(self._arrays[place], np.float64)

    def __len__(self) -> int:
        return len(self._arrays)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Addends:
    """What is added up, over the same rows.

    Attributes:
        totals: One array for each addend, in any dtype.
        slices: Of each the sum of |x| of the slices that it is made of, element by
            element; empty where each is one slice.
        counts: Of each how many slices there are, for each row; empty likewise.
    """

    totals: tuple[npt.NDArray[np.generic], ...]
    slices: tuple[Array, ...] = ()
    counts: tuple[Number, ...] = ()

    def add_up(self) -> Array:
        """The sum."""
        return _add(self.totals, lambda array: array)

    def measure(self) -> Array:
        """The sum of |x| of all slices, element by element."""
        return _add(self.slices or self.totals, np.abs)

    def count(self) -> Number:
        """How many slices an element has; of each row, where these differ."""
        # A row may be met several times by one replica: every slice is an addend.
        return sum(self.counts) if self.counts else len(self.totals)


def collect_addends(
    parts: Sequence[Value], rows: npt.NDArray[np.int64] | None, factor: float
) -> Addends:
    """The replicas' values, brought into the form of `join_rows`, times a factor."""
    dense = tuple(part for part in parts if not isinstance(part, SparseRows))
    if len(dense) == len(parts) and factor == 1:
        return Addends(totals=dense)
    aligned = [align_value(part, rows) for part in parts]
    totals = tuple(factor * a.total for a in aligned)
    if all(a.counts is None for a in aligned):
        return Addends(totals=totals)
    return Addends(
        totals=totals,
        slices=tuple(abs(factor) * a.magnitude for a in aligned),
        counts=tuple(a.number for a in aligned),
    )


def _add(
    arrays: Sequence[npt.NDArray[np.generic]],
    change: Callable[[Array], Array],
) -> Array:
    total = np.zeros(arrays[0].shape)
    for array in arrays:
        total += change(np.asarray(array, np.float64))
    return total
