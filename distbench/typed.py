"""Values given from Python, as the types that were declared for them."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

from distbench.errors import BadInputError

_WORDS = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    Path: "a path",
    NoneType: "None",
}


def as_declared(name: str, value: object, declared: Any) -> Any:  # of that type
    """A value as its declared type: a list as a tuple, NumPy's numbers as Python's.

    Args:
        name: What the value is called in the message.
        value: What was given.
        declared: `str`, `int`, `float`, `bool`, `Path`, a tuple of any number of one
            of these, or such a type or None.

    Raises:
        BadInputError: The value is of another type.
    """
    try:
        return _convert(value, declared)
    except TypeError:
        raise BadInputError(
            f"{name} must be {_describe(declared)}. Received: {value!r}."
        ) from None


def check_kind(name: str, value: object, kind: type, expected: str) -> None:
    """Raise BadInputError for what is given and is no object of a class.

    Args:
        name: What the value is called in the message.
        value: What was given; None stands for nothing.
        kind: The class.
        expected: What it is to be, in words.
    """
    if value is not None and not isinstance(value, kind):
        raise BadInputError(f"{name} must be {expected} or None. Received: {value!r}.")


def _convert(value: Any, declared: Any) -> Any:
    if get_origin(declared) is UnionType:
        inner, _ = get_args(declared)
        return None if value is None else _convert(value, inner)
    if get_origin(declared) is tuple:
        if isinstance(value, str):
            raise TypeError
        return tuple(map(partial(_convert, declared=get_args(declared)[0]), value))
    return _CONVERTERS[declared](value)


def _read_text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _read_texts(value: Any) -> tuple[str, ...]:
    return tuple(map(_read_text, value))


def _read_count(value: Any) -> int:
    # True is a whole number to Python, and never what somebody counted.
    if isinstance(value, bool):
        raise TypeError
    return operator.index(value)


def _read_number(value: Any) -> float:
    if isinstance(value, bool | str):
        raise TypeError
    return float(value)


def _read_truth(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _read_path(value: Any) -> Path:
    return Path(os.fspath(value))


_CONVERTERS: dict[Any, Callable[[Any], Any]] = {
    str: _read_text,
    int: _read_count,
    float: _read_number,
    bool: _read_truth,
    Path: _read_path,
}


def _describe(declared: Any) -> str:
    if get_origin(declared) is UnionType:
        return " or ".join(map(_describe, get_args(declared)))
    if get_origin(declared) is tuple:
        return f"a list, each element {_describe(get_args(declared)[0])}"
    return _WORDS[declared]


def list_texts(name: str, value: object) -> tuple[str, ...]:
    """One text as a list of it, several as they are.

    Args:
        name: What the value is called in the message.
        value: What was given.

    Raises:
        BadInputError: It is neither.
    """
    try:
        return _read_texts((value,) if isinstance(value, str) else value)
    except TypeError:
        raise BadInputError(
            f"{name} must be a text or a list of texts. Received: {value!r}."
        ) from None


def list_given(value: object) -> Any:  # what iterates, and is no text
    """One thing as a list of it, several as they are."""
    is_one = isinstance(value, str) or not isinstance(value, Iterable)
    return (value,) if is_one else value
