"""Where a step draws random numbers: in the user's own code, or in a layer of Keras."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

_DRAWS = re.compile(
    r"Random(?!.*(Get|Seed|Dataset|Queue))|Multinomial|TruncatedNormal"
    r"|^Stateful(StandardNormal|Uniform)|^StatelessShuffle$"
)
"""Types of the ops that draw; not of those that make a key or move a generator on."""
_TENSORFLOW = re.compile(r"[/\\]tensorflow[/\\]python[/\\]")
_INSTALLED = re.compile(r"^.*[/\\](site|dist)-packages[/\\]")
_KERAS = re.compile(r"[/\\](tf_)?keras[/\\]src[/\\]")


def find_draws(graph: Any) -> dict[str, str]:
    """Who draws: the place in the code, and `subject` or `framework`."""
    found: dict[str, str] = {}
    for op in _list_ops(graph, set()):
        if not _DRAWS.search(op.type):
            continue
        callers = [f for f in op.traceback if not _TENSORFLOW.search(f.filename)]
        if callers:
            file = callers[-1].filename
            # Where a package is installed tells nobody anything, and fills a line.
            place = f"{_INSTALLED.sub('', file)}:{callers[-1].lineno}"
            is_keras = _KERAS.search(file)
            found[place] = "framework" if is_keras else "subject"
    return found


def _list_ops(graph: Any, seen: set[int]) -> Iterator[Any]:
    """All ops, those in the bodies of functions, conditionals and loops included."""
    seen.add(id(graph))
    yield from graph.get_operations()
    for function in graph._functions.values():
        body = getattr(function, "graph", None) or getattr(function, "_graph", None)
        if body is not None and id(body) not in seen:
            yield from _list_ops(body, seen)
