"""State of which a cluster holds N times what one device holds, or an N-th."""

from __future__ import annotations

import numpy as np

from distbench.trace import INITIAL, WHOLE, Trace, TraceKey, VariableInfo
from distbench.trace.dtypes import find_digits, is_whole
from distbench.trace.numbers import Array, are_equal, densify, measure_size

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
    held, due = [], []
    for step in range(INITIAL, observed.steps):
        key = TraceKey(step=step, phase=info.role, variable=info.path)
        whole = reference.get(key.at(WHOLE))
        found = [observed.get(key.at(r)) for r in range(observed.replicas)]
        copies = [densify(copy) for copy in found if copy is not None]
        if whole is None or not copies:
            return None
        expected = densify(whole)
        if step == INITIAL and all(are_equal(copy, expected) for copy in copies):
            continue  # what is overwritten may begin with anything
        for copy in copies:
            if copy.shape != expected.shape:
                return None
            held.append(copy.ravel())
            due.append(expected.ravel())
    if not held or observed.replicas == 1:
        return None
    seen, wanted = np.concatenate(held), np.concatenate(due)
    parts = (1 / observed.replicas, float(observed.replicas))
    return next((part for part in parts if _are_near(seen, part * wanted)), None)


def _are_near(seen: Array, due: Array) -> bool:
    size = measure_size(due)
    return 0 < size < np.inf and measure_size(seen - due) <= _NEAR * size
