"""Finds the model variable of a slot whose name does not tell it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from distbench.compare.values import Array, densify, measure_norm
from distbench.diagnose.fit import solve_least_squares
from distbench.evidence import Evidence
from distbench.trace import WHOLE, Phase, TraceKey, VariableInfo

_NEAR = 1e-3
"""What a slot's change may differ by from its rule, as a share of it."""


def name_owners(evidence: Evidence) -> Evidence:
    """Add the owners that can be told from shapes and numbers.

    A slot belongs to the one model variable of its shape. Of several it is the one from
    whose gradient, or the square of it, and its own value before the slot follows in
    the first step on one device.
    """
    infos = evidence.observed.variables
    if all(info.of or not _may_have_owner(info) for info in infos):
        return evidence
    owners = {
        info.path: find_owner(evidence, info, infos)
        for info in infos
        if not info.of and _may_have_owner(info)
    }
    named = tuple(
        replace(info, of=owners[info.path]) if info.path in owners else info
        for info in infos
    )
    return replace(evidence, observed=replace(evidence.observed, variables=named))


def find_owner(
    evidence: Evidence, slot: VariableInfo, infos: Sequence[VariableInfo]
) -> str:
    """The path of a slot's model variable; empty where none or several may be it."""
    paths = [
        info.path
        for info in infos
        if info.role == "variable" and info.trainable and info.shape == slot.shape
    ]
    if len(paths) < 2:
        return "".join(paths)
    rests = {path: _measure_rest(evidence, slot.path, path) for path in paths}
    best = min(paths, key=lambda path: rests[path])
    others = min(rests[path] for path in paths if path != best)
    return best if rests[best] <= _NEAR < others else ""


def _may_have_owner(info: VariableInfo) -> bool:
    return info.role == "slot" and bool(info.shape)


def _measure_rest(evidence: Evidence, slot: str, path: str) -> float:
    """What is left of a slot's value by the best rule with a variable's gradient."""
    after = _find_reference(evidence, "slot", slot)
    gradient = _find_reference(evidence, "applied_gradient", path)
    before = evidence.get_before(0, "slot", slot)
    if after is None or gradient is None or gradient.shape != after.shape:
        return float("inf")
    base = np.zeros_like(after) if before is None else densify(before)
    size = measure_norm(after)
    rests = []
    for fed in (gradient, gradient**2):
        matrix = np.stack([base.ravel(), fed.ravel()], axis=1)
        weights = solve_least_squares(matrix, after.ravel(), determined=False)
        if weights is not None and size > 0:
            rests.append(measure_norm(matrix @ weights - after.ravel()) / size)
    return min(rests, default=float("inf"))


def _find_reference(evidence: Evidence, phase: Phase, path: str) -> Array | None:
    key = TraceKey(step=0, phase=phase, variable=path, replica=WHOLE)
    value = evidence.reference.get(key)
    return None if value is None else densify(value)
