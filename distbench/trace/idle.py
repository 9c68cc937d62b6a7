"""Variables that a program holds, and that neither a step nor its loop ever changes.

A number of replicas, say, that the loop reads between two steps: one device holds
another one, and nobody's step starts from it.
"""

from __future__ import annotations

import numpy as np

from distbench.trace import Trace


def find_idle(trace: Trace) -> frozenset[str]:
    """Paths of those that no step uses, and that hold the same all the time."""
    return frozenset(
        info.path
        for info in trace.variables
        if info.between and _is_constant(trace, info.path)
    )


def _is_constant(trace: Trace, path: str) -> bool:
    held: dict[int, set[bytes]] = {}
    for key, value in trace.values.items():
        if key.variable == path:
            held.setdefault(key.replica, set()).add(np.asarray(value).tobytes())
    return all(len(values) == 1 for values in held.values())
