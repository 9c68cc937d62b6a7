"""What can be reached from an object: through attributes, containers and closures."""

from __future__ import annotations

import contextlib
import functools
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from distbench.worker.state.components import is_variable

_LEAVES = (
    str, bytes, int, float, complex, bool, type(None), np.ndarray, np.generic,
    tf.Tensor, tf.DType, tf.TensorShape, tf.Graph, tf.Operation, tf.distribute.Strategy,
    type, types.ModuleType, types.BuiltinFunctionType,
)  # fmt: skip
"""What holds no variable, or others' as well."""

_OWN = "distbench.worker."
"""What stands in front of an optimizer's methods knows other optimizers as well."""


def walk_variables(root: Any, beyond: tuple[type, ...] = ()) -> Iterator[Any]:
    """Every variable that can be reached from an object, breadth first.

    Follows attributes, mappings, sequences, sets, partials, bound methods, closures and
    `tf.function`s; stops at tensors, graphs, strategies, modules and classes. An
    optimizer's own `variables` misses hyperparameters, counters and plain attributes.

    Args:
        root: Where to begin.
        beyond: Kinds of objects that are not looked into.
    """
    return filter(is_variable, walk(root, _list_children, beyond))


def find_held(root: Any, is_wanted: Callable[[Any], bool]) -> list[Any]:
    """Every object of a kind that can be reached from another, itself included."""
    held = walk(root, _list_children)
    return [item for item in held if not is_variable(item) and is_wanted(item)]


def walk(
    root: Any,
    list_children: Callable[[Any], Iterable[Any]],
    beyond: tuple[type, ...] = (),
) -> Iterator[Any]:
    """Every object that can be reached from another, breadth first, each once.

    Args:
        root: Where to begin; it is the first one.
        list_children: What an object holds; variables are not looked into.
        beyond: Kinds of objects that are left out, as those are that hold none.
    """
    leaves = (*_LEAVES, *beyond)
    # Held themselves: another object could get the address of one that is let go.
    seen: dict[int, Any] = {}
    queue = deque([root])
    while queue:
        item = queue.popleft()
        if id(item) in seen or isinstance(item, leaves):
            continue
        seen[id(item)] = item
        yield item
        if not is_variable(item):
            queue.extend(list_children(item))


def _list_children(item: Any) -> list[Any]:
    if type(item).__module__.startswith(_OWN):
        return []
    if isinstance(item, Mapping):
        return [*item.keys(), *item.values()]
    if isinstance(item, (list, tuple, set, frozenset, deque)):
        return list(item)
    if isinstance(item, types.MethodType):
        return [item.__self__, item.__func__]
    if isinstance(item, functools.partial):
        return [item.func, *item.args, *item.keywords.values()]
    children = list(get_attributes(item).values())
    if isinstance(item, types.FunctionType):
        children += _list_cells(item)
    elif issubclass(type(item), tf.types.experimental.PolymorphicFunction):
        children.append(item.python_function)
    return children + _list_slot_values(item)


def get_attributes(item: Any) -> dict[str, Any]:
    """What an object has by name, its class aside.

    It is asked for no other name: a mock or a proxy has them all, and answers each time
    with another object that does the same.
    """
    try:
        found = object.__getattribute__(item, "__dict__")
    except Exception:  # noqa: BLE001  # a user's property may raise anything
        return {}
    return found if isinstance(found, dict) else {}


def _list_cells(function: types.FunctionType) -> list[Any]:
    """What a closure holds; a cell that is not filled yet holds nothing."""
    values = []
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):
            values.append(cell.cell_contents)
    return values


def _list_slot_values(item: Any) -> list[Any]:
    """Attributes of a class with `__slots__`; one that is not set yet has none."""
    values = []
    for owner in type(item).__mro__:
        if "__slots__" not in vars(owner):
            continue
        for slot in vars(owner).values():
            if isinstance(slot, types.MemberDescriptorType):
                with contextlib.suppress(AttributeError):
                    values.append(slot.__get__(item))
    return values
