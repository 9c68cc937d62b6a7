"""What functions and classes keep: globals, closures, and attributes of a class."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator, MutableMapping
from types import CodeType, FunctionType, MethodType
from typing import Any

from distbench.worker.process.sources import is_own_file


class CodeState(MutableMapping[str, Any]):
    """Names that a piece of code can rebind, as a dictionary of what they stand for.

    Args:
        names: The names.
        read: Gives what one stands for; raises where it stands for nothing.
        write: Has one stand for something else.
    """

    def __init__(
        self,
        names: tuple[str, ...],
        read: Callable[[str], Any],
        write: Callable[[str, Any], None],
    ) -> None:
        self._read, self._write = read, write
        self._names = tuple(name for name in names if self._has(name))

    def _has(self, name: str) -> bool:
        try:
            self._read(name)
        except (KeyError, ValueError):
            return False
        return True

    def __getitem__(self, name: str) -> Any:
        return self._read(name)

    def __setitem__(self, name: str, value: Any) -> None:
        self._write(name, value)

    def __delitem__(self, name: str) -> None:
        raise TypeError(f"{name} stays: code has named it")

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def is_users(kind: type) -> bool:
    """Whether a class is the user's own: no framework's, and nothing installed."""
    module = sys.modules.get(kind.__module__)
    # What was pickled by value says that it is of the main module.
    if module is None or kind.__module__ == "__main__":
        return True
    file = getattr(module, "__file__", None) or ""
    return bool(file) and is_own_file(file)


def list_function_state(function: FunctionType | MethodType) -> list[CodeState]:
    """What a function of the user's closes over, and the globals that it names."""
    plain: Any = inspect.unwrap(getattr(function, "__func__", function))
    if not isinstance(plain, FunctionType):
        return []
    is_own = is_own_file(plain.__code__.co_filename)
    return [_read_function(plain)] if is_own else []


def list_class_state(kind: type) -> list[CodeState]:
    """Attributes of a class, and of each of the user's that it derives from."""
    return [_read_class(base) for base in kind.__mro__ if is_users(base)]


@functools.cache
def _read_class(kind: type) -> CodeState:
    names = tuple(name for name in vars(kind) if not name.startswith("__"))
    return CodeState(names, vars(kind).__getitem__, functools.partial(setattr, kind))


@functools.cache
def _read_function(function: FunctionType) -> CodeState:
    cells = dict(
        zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    )
    named = function.__globals__

    def read(name: str) -> Any:
        return cells[name].cell_contents if name in cells else named[name]

    def write(name: str, value: Any) -> None:
        if name in cells:
            cells[name].cell_contents = value
        else:
            named[name] = value

    return CodeState((*cells, *_list_names(function.__code__)), read, write)


def _list_names(code: CodeType) -> Iterator[str]:
    """Globals that code names, its inner functions' included."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _list_names(constant)
