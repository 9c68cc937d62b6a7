"""Where a step draws random numbers: in the user's own code, or in a layer of Keras."""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Any

import tensorflow as tf

from distbench.trace import OF_BATCH
from distbench.trace.drawing import is_drawing
from distbench.worker.process.sources import is_of
from distbench.worker.state.graphs import list_ops
from distbench.worker.taps.callers import find_caller, name_line

_SIZES = ("Shape", "ShapeN", "Size")
_FEW = 16
"""A constant with more numbers is no part of a seed."""


def find_draws(graph: Any) -> dict[str, str]:
    """Who draws: the place in the code, and `subject` or `framework`."""
    found: dict[str, str] = {}
    for op in list_ops(graph):
        place, file = _find_place(op)
        if place:
            is_keras = is_of(file, "keras", "tf_keras")
            found[place] = "framework" if is_keras else "subject"
    return found


def list_drawn(graph: Any) -> list[Any]:
    """The random numbers of a graph."""
    drawing = (op for op in graph.get_operations() if is_drawing(op.type))
    return [tensor for op in drawing for tensor in op.outputs]


def find_seeds(graph: Any) -> dict[str, list[str]]:
    """The constants of which each line makes the seeds of its draws, or `OF_BATCH`.

    A replica's number is one, so they are others on other replicas if it has a part in
    a seed. Each replica draws other numbers then than one device does.
    """
    found: dict[str, set[str]] = {}
    for op in list_ops(graph):
        place, _ = _find_place(op)
        if place:
            found.setdefault(place, set()).add(_join_constants(op))
    return {place: sorted(seeds) for place, seeds in found.items()}


def _find_place(op: Any) -> tuple[str, str]:
    """The line of whoever draws by an op, and its file; empty of what does not draw."""
    if not is_drawing(op.type):
        return "", ""
    caller = find_caller(op)
    return ("", "") if caller is None else (name_line(caller), caller.filename)


def find_seeding(graph: Any) -> frozenset[int]:
    """The variables that have a part in the seeds of draws, by identity of handles."""
    return frozenset(
        id(outer)
        for op in list_ops(graph)
        if is_drawing(op.type)
        for source in _list_seeds(op)
        for outer in _list_outside(source)
        if outer.dtype == tf.resource
    )


def draws_on(graph: Any, known: Set[int]) -> bool:
    """Whether a step draws other numbers each time, though it starts from one state.

    Two runs may be alike by chance: where they toss a coin.

    Args:
        graph: What was traced of it.
        known: The variables of its state, by identity of handles.
    """
    is_stateful = any(
        is_drawing(op.type) and op.op_def.is_stateful for op in list_ops(graph)
    )
    return is_stateful or not find_seeding(graph) <= known


def _join_constants(op: Any) -> str:
    """The constants of which an op's seeds are computed, as one line, or `OF_BATCH`."""
    constants: list[str] = []
    for source in _list_seeds(op):
        if source.type == "Const":
            value = tf.get_static_value(source.outputs[0])
            if value is not None and value.size <= _FEW:
                constants.append(str(value.tolist()))
        if source.type == "Placeholder" and not _list_outside(source):
            constants.append(OF_BATCH)
    return " ".join(sorted(constants))


def _list_seeds(op: Any) -> Iterator[Any]:
    """The ops that what an op draws is computed by.

    Not those of its first input, which says what is drawn.
    """
    waiting = [tensor.op for tensor in list(op.inputs)[1:]]
    seen = {id(source) for source in waiting}
    while waiting:
        source = waiting.pop()
        yield source
        # How many numbers are drawn is no part of what they are.
        givers = [] if source.type in _SIZES else [t.op for t in source.inputs]
        givers += [o.op for o in _list_outside(source) if hasattr(o, "graph")]
        for giver in givers:
            if id(giver) not in seen:
                seen.add(id(giver))
                waiting.append(giver)


def _list_outside(op: Any) -> list[Any]:
    """What a placeholder of an inner function stands for; of others nothing."""
    captures = getattr(op.graph, "captures", ()) if op.type == "Placeholder" else ()
    return [outer for outer, inner in captures if inner.op is op]
