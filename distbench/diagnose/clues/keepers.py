"""State that keeps the gradient of a step here, and does not on one device.

What is kept is handed on in a later step. Where each step starts from one device's
state, which keeps none, no earlier gradient is ever seen: what shows is where that of
this step went.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from distbench.compare.arrays.bounds import find_roundoff
from distbench.evidence import Evidence
from distbench.trace import SUMMED, WHOLE, TraceKey, VariableInfo
from distbench.trace.numbers import Array, densify, measure_distance, measure_size

_OPERATIONS = 8
"""Rounded operations on each addend, as many as a prediction is allowed."""


def find_keepers(evidence: Evidence) -> Mapping[str, VariableInfo]:
    """By trained variable the state that holds its gradient after each step.

    That is the sum of the replicas' own gradients, or what one device hands on, on all
    replicas that hold the state. Where one device holds the same, none is named.
    """
    found: dict[str, VariableInfo] = {}
    taken: set[str] = set()
    shapes = {info.path: info.shape for info in evidence.observed.variables}
    for variable in sorted(evidence.observed.trained):
        for info in evidence.observed.variables:
            is_free = info.path not in taken and info.of in ("", variable)
            is_alike = info.shape == shapes.get(variable)
            if is_free and is_alike and _keeps(evidence, info, variable):
                found[variable] = info
                taken.add(info.path)
                break
    return found


def find_held(evidence: Evidence, info: VariableInfo, key: TraceKey) -> Array | None:
    """What state held before the step of any value, on the replica of that; dense."""
    state = replace(key, phase=info.role, variable=info.path, call=0)
    value = evidence.get_held(state)
    return None if value is None else densify(value)


def _keeps(evidence: Evidence, info: VariableInfo, variable: str) -> bool:
    is_trained = info.role == "variable" and info.trainable
    if is_trained or not info.synchronised or info.role == "iterations":
        return False
    shows, is_alone = False, False
    for step in range(evidence.observed.steps):
        key = TraceKey(step=step, phase=info.role, variable=info.path)
        copies = map(key.at, range(evidence.observed.replicas))
        held = [evidence.observed.get(copy) for copy in copies]
        left = [densify(value) for value in held if value is not None]
        alone = evidence.reference.get(key.at(WHOLE))
        due = list(_list_due(evidence, variable, key))
        if not (left and due) or alone is None:
            return False
        allowed = _find_rounding(evidence, info, variable, key)
        near = [
            gradient
            for gradient in due
            if all(measure_distance(value, gradient) <= allowed for value in left)
        ]
        if not near:
            return False
        shows |= bool(np.any(near[0]))
        is_alone |= measure_distance(densify(alone), near[0]) > allowed
    return shows and is_alone


def _list_due(evidence: Evidence, variable: str, held: TraceKey) -> Iterator[Array]:
    """What a step may hand on of a variable: a sum, or what is made of it."""
    own = _list_own(evidence, variable, held)
    if own:
        yield np.asarray(np.sum(own, axis=0))
    for phase in SUMMED:
        for key in evidence.name_gradients(held.at(WHOLE), phase, variable):
            if (value := evidence.reference.get(key)) is not None:
                yield densify(value)


def _list_own(evidence: Evidence, variable: str, held: TraceKey) -> list[Array]:
    keys = evidence.name_gradients(held, "local_gradient", variable)
    found = filter(None, map(evidence.observed.get_replicas, keys))
    return [densify(value) for value in next(found, ())]


def _find_rounding(
    evidence: Evidence, info: VariableInfo, variable: str, held: TraceKey
) -> float:
    """How far rounding may move a sum of the replicas' gradients."""
    sizes = [
        measure_size(value)
        for value in _list_own(evidence, variable, held)
        or _list_due(evidence, variable, held)
    ]
    operations = _OPERATIONS * (evidence.observed.replicas + 1)
    return operations * find_roundoff(info.dtype) * sum(sizes)
