"""What a program keeps in Python from one step to the next, as the state it is."""

from __future__ import annotations

import copy
import random
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np
import tensorflow as tf

from distbench.worker.state.components import is_variable
from distbench.worker.state.reachable import get_attributes, walk

_FRAMEWORKS = ("tensorflow", "keras", "tf_keras")
_NUMBERS = (str, bytes, int, float, complex, bool, type(None), np.generic)
_TABLES = (
    tf.lookup.experimental.MutableHashTable,
    tf.lookup.experimental.DenseHashTable,
)
_LARGE = 4096
"""So many elements are data, which no step changes."""
_FIRST = "", 0
"""Where all tiers begin."""

_Held = list[tuple[Any, Any]]
"""Objects, dictionaries and generators, and copies of what each had."""


class Between:
    """Puts back what a program keeps in Python, where a step is run once more.

    The least loss so far, or how many steps it has not fallen for, say: numbers and
    small arrays, containers of these, generators of random numbers and lookup tables,
    that the program or an object of a class of the user's has. Variables are the
    business of others.

    Args:
        root: The program.
    """

    def __init__(self, root: Any) -> None:
        self._root = root
        self._kept: dict[tuple[str, int], _Held] = {}
        self._tier = ""
        self._next = 0
        self._left: tuple[str, int] | None = None
        """The step before which what there is now has to be, if nothing came between:
        the one after the last that was run for the first time."""

    @cached_property
    def has_tables(self) -> bool:
        """Whether the program has tables that its steps may change."""
        return any(isinstance(i, _TABLES) for i in walk(self._root, _list_children))

    def turn_to(self, tier: str, *, anew: bool = False) -> None:
        """Say to which steps those that are begun from now on belong.

        Args:
            tier: In which they start, and so lead, elsewhere than in others.
            anew: Whether they are run for the first time, and go on from each other.
        """
        self._tier = tier
        if anew:
            self._next = 0

    @contextmanager
    def begin(self, step: int) -> Iterator[None]:
        """Inside, a program does what it does between two steps, from what it kept."""
        left = self._left or (None if self._kept else _FIRST)
        if left is not None:
            self._kept[left] = self._take()
        self._left = None
        self._put_back(self._kept.get((self._tier, step) if step else _FIRST, []))
        yield
        if step == self._next:
            self._next = step + 1
            self._left = self._tier, self._next

    def _take(self) -> _Held:
        items = walk(self._root, _list_children)
        return [(item, copy.deepcopy(_read(item))) for item in items]

    def _put_back(self, kept: _Held) -> None:
        for item, values in kept:
            _write(item, copy.deepcopy(values))


def _read(item: Any) -> Any:
    if isinstance(item, np.random.Generator):
        return item.bit_generator.state
    if isinstance(item, random.Random):
        return item.getstate()
    if isinstance(item, _TABLES):
        return [part.numpy() for part in item.export()]
    held = _find_held(item)
    return {name: value for name, value in held.items() if _is_plain(value)}


def _write(item: Any, values: Any) -> None:
    if isinstance(item, np.random.Generator):
        item.bit_generator.state = values
    elif isinstance(item, random.Random):
        item.setstate(values)
    elif isinstance(item, _TABLES):
        keys, _ = item.export()
        item.remove(keys)
        item.insert(*values)
    else:
        for name, value in values.items():
            _put(_find_held(item), name, value)


def _find_held(item: Any) -> dict[str, Any]:
    if isinstance(item, dict):
        return item
    return get_attributes(item) if _is_users(item) else {}


def _is_users(item: Any) -> bool:
    """Whether it is no object of a framework, which has its own way with its own."""
    modules = {kind.__module__.partition(".")[0] for kind in type(item).__mro__}
    return not (is_variable(item) or modules & {*_FRAMEWORKS})


def _is_plain(value: Any, depth: int = 8) -> bool:
    if isinstance(value, np.ndarray):
        return value.size < _LARGE and not value.dtype.hasobject
    parts: Iterable[Any] = ()
    if type(value) is dict:
        parts = [*value.keys(), *value.values()]
    elif type(value) in (list, tuple, set, frozenset, deque):
        parts = value
    elif not isinstance(value, _NUMBERS):
        return False
    return (
        depth > 0
        and len(list(parts)) < _LARGE
        and all(_is_plain(part, depth - 1) for part in parts)
    )


def _put(held: dict[str, Any], name: str, value: Any) -> None:
    """Set it, in place where others may hold it too."""
    current: Any = held.get(name)
    if not _is_plain(current):
        return  # by now it is something else, as a model is that was None
    if type(current) is not type(value):
        held[name] = value
    elif isinstance(current, (dict, set)):
        current.clear()
        current.update(value)
    elif isinstance(current, (list, deque)):
        current.clear()
        current.extend(value)
    else:
        held[name] = value


def _list_children(item: Any) -> list[Any]:
    if isinstance(item, Mapping):
        return list(item.values()) if len(item) < _LARGE else []
    if isinstance(item, (list, tuple)):
        return list(item) if len(item) < _LARGE else []
    return list(_find_held(item).values())
