"""The ops of a graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_PYTHON = ("PyFunc", "PyFuncStateless", "EagerPyFunc")
"""Ops of `tf.numpy_function` and `tf.py_function`."""


def list_ops(graph: Any) -> Iterator[Any]:
    """All ops, those in the bodies of functions, conditions and loops included."""
    yield from _list_ops(graph, set())


def calls_python(graph: Any) -> bool:
    """Whether it calls a Python function where it runs, as `tf.numpy_function` does."""
    return any(op.type in _PYTHON for op in list_ops(graph))


def _list_ops(graph: Any, seen: set[int]) -> Iterator[Any]:
    seen.add(id(graph))
    yield from graph.get_operations()
    for function in graph._functions.values():
        body = getattr(function, "graph", None) or getattr(function, "_graph", None)
        if body is not None and id(body) not in seen:
            yield from _list_ops(body, seen)
