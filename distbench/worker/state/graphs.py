"""The ops of a graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_PYTHON = ("PyFunc", "PyFuncStateless", "EagerPyFunc")
"""Ops of `tf.numpy_function` and `tf.py_function`."""
_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
"""Ops that call one function, and do nothing else."""


def list_ops(graph: Any) -> Iterator[Any]:
    """All ops, those in the bodies of functions, conditions and loops included."""
    yield from _list_ops(graph, set())


def calls_python(graph: Any) -> bool:
    """Whether it calls a Python function where it runs, as `tf.numpy_function` does."""
    return any(map(is_python, list_ops(graph)))


def is_python(op: Any) -> bool:
    """Whether an op calls a Python function by itself."""
    return op.type in _PYTHON


def list_called(op: Any) -> Iterator[Any]:
    """The graphs of the functions that an op calls itself."""
    attributes = op.node_def.attr.values()
    # Of `tf.switch_case` all branches are one attribute.
    called = {f.name for value in attributes for f in (value.func, *value.list.func)}
    for name in called - {""}:
        body = _find_body(op.graph._functions.get(name))
        if body is not None:
            yield body


def find_body(op: Any) -> Any:
    """The graph of the function that an op calls, whose inputs and outputs are its own.

    A gradient adds outputs to it, which are its last ones. None of what decides what to
    call, or how often, and of what calls none.
    """
    body = next(list_called(op), None) if op.type in _CALLS else None
    is_whole = (
        body is not None
        and len(body.inputs) == len(op.inputs)
        and len(body.outputs) >= len(op.outputs)
    )
    return body if is_whole else None


def list_inner(op: Any) -> Iterator[Any]:
    """The ops of the functions that an op calls."""
    for graph in list_called(op):
        yield from list_ops(graph)


def _list_ops(graph: Any, seen: set[int]) -> Iterator[Any]:
    seen.add(id(graph))
    yield from graph.get_operations()
    for body in map(_find_body, graph._functions.values()):
        if body is not None and id(body) not in seen:
            yield from _list_ops(body, seen)


def _find_body(function: Any) -> Any:
    """The graph of a function that another graph knows; None of what has none."""
    return getattr(function, "graph", None) or getattr(function, "_graph", None)
