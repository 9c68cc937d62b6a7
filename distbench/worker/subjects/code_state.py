"""What functions and classes keep: globals, closures, and attributes of a class."""

from __future__ import annotations

import sys
from collections.abc import Iterator, MutableMapping
from types import CodeType, FunctionType, MethodType
from typing import Any

from distbench.worker.process.sources import is_own_file

CODE = (FunctionType, MethodType, classmethod, staticmethod, property)
"""Kinds of objects that are functions, or stand for some."""


class ClassState(MutableMapping[str, Any]):
    """Attributes of a class itself, as a dictionary.

    Args:
        kind: The class.
    """

    def __init__(self, kind: type) -> None:
        self._kind = kind

    def __getitem__(self, name: str) -> Any:
        return vars(self._kind)[name]

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self._kind, name, value)

    def __delitem__(self, name: str) -> None:
        delattr(self._kind, name)

    def __iter__(self) -> Iterator[str]:
        return iter([name for name in vars(self._kind) if not name.startswith("__")])

    def __len__(self) -> int:
        return sum(1 for _ in self)


class FunctionState(MutableMapping[str, Any]):
    """What a function closes over, and the globals that it names, as a dictionary.

    Args:
        function: The function.
    """

    def __init__(self, function: FunctionType) -> None:
        names = function.__code__.co_freevars
        self._cells = dict(zip(names, function.__closure__ or (), strict=True))
        self._globals = function.__globals__
        self._named = tuple(dict.fromkeys(_list_names(function.__code__)))

    def __getitem__(self, name: str) -> Any:
        if name not in self._cells:
            return self._globals[name]
        try:
            return self._cells[name].cell_contents
        except ValueError as error:  # nothing was assigned yet
            raise KeyError(name) from error

    def __setitem__(self, name: str, value: Any) -> None:
        if name in self._cells:
            self._cells[name].cell_contents = value
        else:
            self._globals[name] = value

    def __delitem__(self, name: str) -> None:
        if name in self._cells:
            del self._cells[name].cell_contents
        else:
            del self._globals[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name in (*self._cells, *self._named) if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def is_users(kind: type) -> bool:
    """Whether a class is the user's own: no framework's, and nothing installed."""
    module = sys.modules.get(kind.__module__)
    # What was pickled by value says that it is of the main module.
    if module is None or kind.__module__ == "__main__":
        return True
    file = getattr(module, "__file__", None) or ""
    return bool(file) and is_own_file(file)


def list_function_state(code: Any) -> list[FunctionState]:
    """What the user's functions keep that one of the kinds of `CODE` stands for."""
    is_property = isinstance(code, property)
    parts: list[Any] = (
        [code.fget, code.fset] if is_property else [getattr(code, "__func__", code)]
    )
    found = []
    for part in parts:
        # A decorated one keeps the one that it stands for.
        while isinstance(part, FunctionType):
            if is_own_file(part.__code__.co_filename):
                found.append(FunctionState(part))
            part = getattr(part, "__wrapped__", None)  # a chain
    return found


def list_class_state(kind: type) -> list[ClassState]:
    """Attributes of a class, and of each of the user's that it derives from."""
    return [ClassState(base) for base in kind.__mro__ if is_users(base)]


def _list_names(code: CodeType) -> Iterator[str]:
    """Globals that code names, its inner functions' included."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _list_names(constant)
