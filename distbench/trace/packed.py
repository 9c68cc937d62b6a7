"""Gradients that an optimizer is handed in another shape than their variables have.

One may be flat, and is the same gradient. One that a statistic is packed with is none,
and no sum of the replicas' own: it is judged by what becomes of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from math import prod

import numpy as np

from distbench.trace import SUMMED, Trace, TraceKey
from distbench.trace.values import Held, SparseRows, Values

PACKED = "packed"
"""Note of a trace without such gradients: the paths of their variables."""


def find_packed(traces: Iterable[Trace]) -> tuple[str, ...]:
    """Paths of the variables for which something is handed that is no gradient."""
    found = {
        key.variable: None
        for trace in traces
        for shapes in [_find_shapes(trace)]
        for key, held in _list_handed(trace)
        if prod(held.shape) != prod(shapes[key.variable])
    }
    return tuple(found)


def shape_gradients(trace: Trace, packed: Collection[str]) -> Trace:
    """A trace in which every gradient has its variable's shape.

    Args:
        trace: Any.
        packed: Paths of the variables whose handed gradients are left out.
    """
    shapes = _find_shapes(trace)
    odd = {key for key, held in _list_handed(trace)}
    if not odd and not packed:
        return trace
    values = Values(trace.values).keep(
        lambda key: key.phase not in SUMMED or key.variable not in packed
    )
    for key in odd & {*values}:
        value, shape = values[key], shapes[key.variable]
        if prod(value.shape) != prod(shape):
            del values[key]  # in this trace alone, as of other examples
        elif not isinstance(value, SparseRows):
            values[key] = np.reshape(value, shape)
    return replace(trace, values=values)


def _find_shapes(trace: Trace) -> dict[str, tuple[int, ...]]:
    return {info.path: info.shape for info in trace.variables}


def _list_handed(trace: Trace) -> list[tuple[TraceKey, Held]]:
    """What was handed in another shape."""
    shapes = _find_shapes(trace)
    held = Values(trace.values).held
    return [
        (key, value)
        for key, value in held.items()
        if key.phase in SUMMED
        and tuple(value.shape) != shapes.get(key.variable, tuple(value.shape))
    ]
