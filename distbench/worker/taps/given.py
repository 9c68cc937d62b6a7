"""What a cluster is given of the reference: starts of steps, and right gradients."""

from __future__ import annotations

from typing import Any

from distbench.trace import INITIAL, WHOLE, Trace, TraceKey
from distbench.worker.taps.board import Fed


def select_gradients(reference: Trace, phase: Any, step: int) -> Fed:
    """What a phase of a step has to hold on every replica."""
    return {
        (key.call, key.phase, key.variable): value
        for key, value in reference.select(step=step, phase=phase, replica=WHOLE)
    }


def select_state(reference: Trace, tier: str, step: int) -> dict[str, Any]:
    """The synchronised state from which a step starts."""
    state: dict[str, Any] = {}
    for variable in reference.variables:
        if not variable.synchronised:
            continue
        restart = step == 0 or (tier == "exact" and variable.role == "variable")
        key = TraceKey(
            step=INITIAL if restart else step - 1,
            phase=variable.role,
            variable=variable.path,
            replica=WHOLE,
        )
        value = reference.get(key)
        if value is not None:
            state[variable.path] = value
    return state
