"""What a cluster is given of the reference: starts of steps, and right gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distbench.trace import INITIAL, WHOLE, Trace, TraceKey
from distbench.trace.idle import find_idle

if TYPE_CHECKING:  # which imports TensorFlow
    from distbench.worker.taps.feeds import Fed


def select_gradients(reference: Trace, phase: Any, step: int) -> Fed:
    """What a phase of a step has to hold on every replica."""
    return {
        (key.call, key.phase, key.variable): value
        for key, value in reference.select(step=step, phase=phase, replica=WHOLE)
    }


def select_state(
    reference: Trace, tier: str, step: int, *, is_shared: bool = False
) -> dict[str, Any]:
    """The state from which a step starts.

    Args:
        reference: What one device has.
        tier: In `exact` the model's variables start anew in each step.
        step: Its number.
        is_shared: Whether state that each replica may have for itself exists once, as
            under parameter servers: else that is nobody's to set.
    """
    state: dict[str, Any] = {}
    idle = find_idle(reference)
    for variable in reference.variables:
        if not (variable.synchronised or is_shared) or variable.path in idle:
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
