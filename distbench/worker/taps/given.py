"""What a cluster is given of the reference: starts of steps, and right gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from distbench.trace import INITIAL, WHOLE, Trace, TraceKey
from distbench.trace.idle import find_idle
from distbench.worker.state.values import are_near

if TYPE_CHECKING:  # which import TensorFlow
    from distbench.worker.taps.collect import State
    from distbench.worker.taps.feeds import ByPlace


def select_gradients(
    trace: Trace, phase: Any, step: int, replica: int = WHOLE
) -> ByPlace:
    """What a phase of a step holds, by where it is fed: on one device, or a replica."""
    return {
        (key.call, key.phase, key.variable): value
        for key, value in trace.select(step=step, phase=phase, replica=replica)
    }


def rename_fed(fed: ByPlace, paths: Mapping[str, str]) -> ByPlace:
    """What is fed, to variables by other paths."""
    return {
        (call, phase, paths.get(path, path)): value
        for (call, phase, path), value in fed.items()
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


def select_free_start(reference: Trace, held: State, replicas: int) -> dict[str, Any]:
    """The state from which a run starts that goes on by itself.

    State that is not trained may be kept in other units. What begins so is left: with
    what one device has in its place the first step would mix both units.

    Args:
        reference: What one device has.
        held: What the subject's variables hold before the first step.
        replicas: Their number, N.
    """
    trained = {
        v.path for v in reference.variables if v.role == "variable" and v.trainable
    }
    copies: dict[str, list[Any]] = {}
    for (path, _), copy in held.items():
        copies.setdefault(path, []).append(copy)
    return {
        path: value
        for path, value in select_state(reference, "free", 0).items()
        if path in trained
        or not _is_in_other_units(value, copies.get(path, ()), replicas)
    }


def _is_in_other_units(value: Any, copies: Sequence[Any], replicas: int) -> bool:
    """Whether all copies are N times, or an N-th of, what one device has."""
    return bool(copies and np.any(value)) and any(
        all(are_near(value, copy, None, part=part) for copy in copies)
        for part in (1 / replicas, replicas)
    )
