"""What a program keeps in Python from one step to the next, as the state it is."""

from __future__ import annotations

import copy
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from functools import cache, cached_property
from typing import Any

import numpy as np
import tensorflow as tf

from distbench.worker.state.components import is_variable
from distbench.worker.state.lookup import TABLES, read_table, write_table
from distbench.worker.state.reachable import get_attributes, walk
from distbench.worker.subjects.code_state import (
    CODE,
    ClassState,
    FunctionState,
    is_users,
    list_class_state,
    list_function_state,
)

_NUMBERS = (str, bytes, int, float, complex, bool, type(None), np.generic)
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
    def tables(self) -> tuple[Any, ...]:
        """The lookup tables that the program has, and its steps may change."""
        found = walk(self._root, _list_children)
        return tuple(item for item in found if isinstance(item, TABLES))

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
    """What is kept of an object; of a dictionary, or attributes, all names as well."""
    for kinds, read, _ in _STATES:
        if isinstance(item, kinds):
            return read(item)
    held = _find_held(item)
    values = {n: v for n, v in held.items() if _is_plain(v) and not _is_set_by_tf(n)}
    return {*held}, values


def _write(item: Any, kept: Any) -> None:
    for kinds, _, write in _STATES:
        if isinstance(item, kinds):
            write(item, kept)
            return
    held, (names, values) = _find_held(item), kept
    new = [n for n in held if n not in names and not _is_set_by_tf(n)]
    for name in [n for n in new if _is_plain(held[n])]:
        del held[name]
    for name, value in values.items():
        _put(held, name, value)


_STATES: tuple[tuple[Any, Callable[[Any], Any], Callable[[Any, Any], None]], ...] = (
    (
        np.random.Generator,
        lambda item: item.bit_generator.state,
        lambda item, kept: setattr(item.bit_generator, "state", kept),
    ),
    (
        np.random.RandomState,
        lambda item: item.get_state(),
        lambda item, kept: item.set_state(kept),
    ),
    # What the system draws has no state.
    (random.SystemRandom, lambda _: None, lambda *_: None),
    (
        random.Random,
        lambda item: item.getstate(),
        lambda item, kept: item.setstate(kept),
    ),
    (TABLES, read_table, write_table),
)
"""Kinds of objects that have a state: how it is read, and how it is set."""


def _find_held(item: Any) -> MutableMapping[str, Any]:
    """A dictionary itself, or the attributes of an object of the user's own class.

    Keras has its own way with its layers and optimizers.
    """
    if isinstance(item, (dict, ClassState, FunctionState)):
        return item
    bases = {kind.__module__.partition(".")[0] for kind in type(item).__mro__}
    if is_variable(item) or bases & {"keras", "tf_keras"} or not is_users(type(item)):
        return {}
    return get_attributes(item)


def _is_set_by_tf(name: Any) -> bool:
    """Whether TensorFlow sets an attribute of that name on a `tf.Module`."""
    return isinstance(name, str) and name in _list_set_by_tf()


@cache
def _list_set_by_tf() -> frozenset[str]:
    module = tf.Module()
    before = {*vars(module)}
    module.part = tf.Module()  # what it tracks is kept in further ones
    return frozenset({*before, *vars(module)} - {"part"})


def _is_plain(value: Any, depth: int = 8) -> bool:
    if isinstance(value, np.ndarray):
        return value.size < _LARGE and not value.dtype.hasobject
    if isinstance(value, tf.__internal__.EagerTensor):
        return bool(value.dtype.is_numpy_compatible and np.size(value) < _LARGE)
    parts: Iterable[Any] = ()
    if type(value) is dict:
        parts = [*value.keys(), *value.values()]
    elif isinstance(value, tuple) or type(value) in (list, set, frozenset, deque):
        parts = value
    elif _is_frozen(value):
        parts = list(get_attributes(value).values())
    elif not isinstance(value, _NUMBERS):
        return False
    return (
        depth > 0
        and len(list(parts)) < _LARGE
        and all(_is_plain(part, depth - 1) for part in parts)
    )


def _is_frozen(value: Any) -> bool:
    """Whether it is a data class that is replaced, and does not change."""
    settings = getattr(type(value), "__dataclass_params__", None)
    return settings is not None and settings.frozen


def _put(held: MutableMapping[str, Any], name: str, value: Any) -> None:
    """Set it, in place where others may hold it too."""
    current: Any = held.get(name)
    if current is value or _is_same(current, value):
        return  # nothing to set where it may not be
    if name in held and not _is_plain(current):
        return  # by now it is something else, as a model is that was None
    if type(current) is not type(value):
        held[name] = value
    elif isinstance(current, (dict, set)):
        current.clear()
        current.update(value)
    elif isinstance(current, (list, deque)):
        current.clear()
        current.extend(value)
    elif (
        isinstance(current, np.ndarray)
        and current.flags.writeable
        and (current.shape, current.dtype) == (value.shape, value.dtype)
    ):
        current[...] = value
    else:
        held[name] = value


def _is_same(current: Any, value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return isinstance(current, np.ndarray) and np.array_equal(current, value)
    is_number = isinstance(value, _NUMBERS) and type(current) is type(value)
    return is_number and bool(current == value)


def _list_children(item: Any) -> list[Any]:
    if isinstance(item, Mapping):
        return list(item.values()) if len(item) < _LARGE else []
    if isinstance(item, (list, tuple)):
        return list(item) if len(item) < _LARGE else []
    if isinstance(item, CODE):
        return list_function_state(item)
    return [*_find_held(item).values(), *list_class_state(type(item))]
