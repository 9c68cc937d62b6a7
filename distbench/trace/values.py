"""What a trace holds under its keys: arrays, sparse rows, and large arrays on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from distbench.trace.shelf import Shelf, Shelved

Key = TypeVar("Key")
Other = TypeVar("Other")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SparseRows:
    """A sparse gradient as it was seen, rows neither sorted nor added up.

    Rows that the variable does not have count for nothing, as TensorFlow drops them on
    some devices.

    Attributes:
        indices: int64 [k], row numbers, repeated where a row occurs several times.
        values: [k, ...], one slice for each index.
        shape: Shape of the dense gradient.
    """

    indices: npt.NDArray[np.int64]
    values: npt.NDArray[np.generic]
    shape: tuple[int, ...]

    def to_dense(self) -> npt.NDArray[np.float64]:
        """The dense gradient in float64, repeated rows added up."""
        dense = np.zeros(self.shape, np.float64)
        inside = self.keep_inside()
        np.add.at(dense, inside.indices, inside.values.astype(np.float64))
        return dense

    def count_rows(self) -> npt.NDArray[np.int64]:
        """How often each row occurs: int64 [rows]."""
        rows = self.keep_inside().indices
        return np.bincount(rows, minlength=self.shape[0]).astype(np.int64)

    @property
    def repeats_rows(self) -> bool:
        """Whether some row occurs several times."""
        return bool(np.any(self.count_rows() > 1))

    def keep_inside(self) -> SparseRows:
        """The same without rows that the variable does not have."""
        inside = (self.indices >= 0) & (self.indices < self.shape[0])
        if inside.all():
            return self
        return replace(self, indices=self.indices[inside], values=self.values[inside])

    def merge(self, *, as_they_come: bool = False) -> SparseRows:
        """Each row once, its slices added up in float64.

        Args:
            as_they_come: Whether rows stay in the order in which they come first, and
                not in that of their numbers.
        """
        inside = self.keep_inside()
        rows, first, places = np.unique(
            inside.indices, return_index=True, return_inverse=True
        )
        total = np.zeros((len(rows), *self.shape[1:]), np.float64)
        np.add.at(total, places, inside.values.astype(np.float64))
        order = np.argsort(first) if as_they_come else slice(None)
        return replace(self, indices=rows[order], values=total[order])

    def list_layers(self) -> tuple[SparseRows, ...]:
        """The first slices of all rows, the second ones, and so on."""
        order = np.argsort(self.indices, kind="stable")
        rows = self.indices[order]
        layer = np.empty(len(rows), np.int64)
        layer[order] = np.arange(len(rows)) - np.searchsorted(rows, rows)
        return tuple(
            replace(
                self, indices=self.indices[layer == i], values=self.values[layer == i]
            )
            for i in range(int(layer.max(initial=-1)) + 1)
        )


Value = npt.NDArray[np.generic] | SparseRows
Held = Value | Shelved
"""A value, or where it lies."""


def get_numbers(value: Value) -> npt.NDArray[np.generic]:
    """The numbers of a value; of sparse rows those of its slices: [k, ...]."""
    return value.values if isinstance(value, SparseRows) else np.asarray(value)


def change_numbers(
    value: Value, change: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]
) -> Value:
    """A value with other numbers; those of sparse rows stay in their rows."""
    if isinstance(value, SparseRows):
        return replace(value, values=change(value.values))
    return change(value)


class Values(MutableMapping[Key, Value]):
    """Values by their keys, of which the large ones may lie on disk.

    One that does is read when it is asked for, and not kept: what nobody holds on to
    takes no memory.

    Args:
        held: What to begin with; of another `Values` nothing is read.
        shelf: Where large arrays are put as they come in; None keeps all in memory.
    """

    def __init__(
        self, held: Mapping[Key, Held] | None = None, shelf: Shelf | None = None
    ) -> None:
        known = held.held if isinstance(held, Values) else held
        self.held: dict[Key, Held] = dict(known or {})
        self._shelf = shelf

    def __getitem__(self, key: Key) -> Value:
        held = self.held[key]
        return held.read() if isinstance(held, Shelved) else held

    def __setitem__(self, key: Key, value: Value) -> None:
        if self._shelf is None or isinstance(value, SparseRows):
            self.held[key] = value
        else:
            self.held[key] = self._shelf.put(value)

    def get(self, key: Key, default: Any = None) -> Any:
        """The value under a key."""
        held = self.held.get(key, default)
        return held.read() if isinstance(held, Shelved) else held

    def __delitem__(self, key: Key) -> None:
        del self.held[key]

    def __iter__(self) -> Iterator[Key]:
        return iter(self.held)

    def __len__(self) -> int:
        return len(self.held)

    def __contains__(self, key: object) -> bool:
        return key in self.held

    def rename(self, change: Callable[[Key], Other]) -> Values[Other]:
        """The same values under other keys."""
        return Values({change(key): held for key, held in self.held.items()})

    def keep(self, is_kept: Callable[[Key], bool]) -> Values[Key]:
        """Those values whose keys are to be kept."""
        return Values({key: h for key, h in self.held.items() if is_kept(key)})
