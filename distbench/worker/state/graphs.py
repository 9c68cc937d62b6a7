"""The ops of a graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def list_ops(graph: Any) -> Iterator[Any]:
    """All ops, those in the bodies of functions, conditions and loops included."""
    yield from _list_ops(graph, set())


def _list_ops(graph: Any, seen: set[int]) -> Iterator[Any]:
    seen.add(id(graph))
    yield from graph.get_operations()
    for function in graph._functions.values():
        body = getattr(function, "graph", None) or getattr(function, "_graph", None)
        if body is not None and id(body) not in seen:
            yield from _list_ops(body, seen)
