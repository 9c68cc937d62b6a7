"""State of which a cluster holds N times what one device holds, or an N-th."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from distbench.trace import INITIAL, WHOLE, Trace, TraceKey, VariableInfo
from distbench.trace.dtypes import find_digits, is_whole
from distbench.trace.numbers import (
    Array,
    are_equal,
    densify,
    measure_distance,
    measure_size,
)

_NEAR = 1e-3
"""What a factor leaves, as a share of the size: what a free run rounds is far less."""


def list_factors(observed: Trace, reference: Trace) -> dict[str, float]:
    """By path, N or 1/N, where all replicas hold so much of it at all times.

    What trains has no units of its own, and what each replica has for itself is a part.
    Of texts there is no multiple.

    Args:
        observed: What a cluster had that went on from its own state.
        reference: What one device had.
    """
    factors = {
        info.path: _find_factor(observed, reference, info)
        for info in observed.variables
        if info.synchronised
        and not (info.role == "variable" and info.trainable)
        and (find_digits(info.dtype) or is_whole(info.dtype))
    }
    return {path: factor for path, factor in factors.items() if factor is not None}


def _find_factor(observed: Trace, reference: Trace, info: VariableInfo) -> float | None:
    """What all copies are so many times; large ones are held one after the other."""
    if observed.replicas == 1:
        return None
    keys = [
        TraceKey(step=step, phase=info.role, variable=info.path)
        for step in range(INITIAL, observed.steps)
    ]
    if _begin_alike(observed, reference, keys[0]):
        del keys[0]  # what is overwritten may begin with anything
    sizes = [measure_size(due) for key in keys for due in _read(reference, key, WHOLE)]
    if len(sizes) < len(keys):
        return None
    size = max(sizes, default=0.0)
    parts = [1 / observed.replicas, float(observed.replicas)]
    for key in keys:
        (due,) = _read(reference, key, WHOLE)
        copy = None
        for copy in _read(observed, key, *range(observed.replicas)):
            parts = [part for part in parts if _are_near(copy, part, due, size)]
            if not parts:
                return None
        if copy is None:
            return None
    return parts[0] if 0 < size < np.inf else None


def _begin_alike(observed: Trace, reference: Trace, key: TraceKey) -> bool:
    alike = [
        are_equal(copy, due)
        for due in _read(reference, key, WHOLE)
        for copy in _read(observed, key, *range(observed.replicas))
    ]
    return bool(alike) and all(alike)


def _read(trace: Trace, key: TraceKey, *replicas: int) -> Iterator[Array]:
    """What there is of a value on each of some replicas."""
    for replica in replicas:
        value = trace.get(key.at(replica))
        if value is not None:
            yield densify(value)


def _are_near(copy: Array, part: float, due: Array, size: float) -> bool:
    if copy.shape != due.shape:
        return False
    return measure_distance(copy, part * due) <= _NEAR * part * size
