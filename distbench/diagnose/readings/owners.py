"""Finds the model variable of a slot whose name does not tell it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from distbench.compare.arrays.least_squares import solve_least_squares
from distbench.evidence import Evidence
from distbench.trace import WHOLE, Phase, Trace, TraceKey, Values, VariableInfo
from distbench.trace.numbers import Array, densify, measure_norm

_NEAR = 1e-3
"""What a slot's change may differ by from its rule, as a share of it."""
_ENOUGH = 3
"""Numbers of a slot, over all steps, that a rule with two weights must explain."""
_OF_BASE = 2
"""So many of them must be made of an old value that is not 0: one has any weight."""


def name_owners(evidence: Evidence) -> Evidence:
    """Add the owners that can be told from shapes and numbers.

    A slot belongs to the one model variable of its shape. Of several it is the one from
    whose gradient, or the square of it, and its own value before the slot follows
    on one device. A model variable that follows so is a slot too: that of a program
    which updates by hand.
    """
    infos = evidence.observed.variables
    owners = {
        info.path: owner
        for info in infos
        if not info.of
        and _may_have_owner(info)
        and (owner := find_owner(evidence, info, infos))
    }
    if not owners:
        return evidence
    kept = {info.path for info in infos if info.role == "variable"} & set(owners)

    def tell(trace: Trace) -> Trace:
        named = tuple(
            replace(info, of=owners[info.path], role="slot")
            if info.path in owners
            else info
            for info in trace.variables
        )
        values = Values(trace.values).rename(
            lambda key: (
                replace(key, phase="slot")
                if key.phase == "variable" and key.variable in kept
                else key
            )
        )
        return replace(trace, variables=named, values=values if kept else trace.values)

    return evidence.change_traces(tell)


def find_owner(
    evidence: Evidence, slot: VariableInfo, infos: Sequence[VariableInfo]
) -> str:
    """The path of a slot's model variable; empty where none or several may be it."""
    paths = [
        info.path
        for info in infos
        if info.role == "variable" and info.trainable and info.shape == slot.shape
    ]
    if not paths:
        return ""
    if slot.role == "slot" and len(paths) == 1:
        return paths[0]
    rests = {path: _measure_rest(evidence, slot, path) for path in paths}
    best = min(paths, key=lambda path: rests[path])
    others = min([rests[path] for path in paths if path != best], default=np.inf)
    return best if rests[best] <= _NEAR < others else ""


def _may_have_owner(info: VariableInfo) -> bool:
    """Slots, and what a program that updates by hand keeps among its variables."""
    is_state = info.role == "slot" or (info.role == "variable" and not info.trainable)
    return is_state and bool(info.shape)


def _measure_rest(evidence: Evidence, slot: VariableInfo, path: str) -> float:
    """What the best rule with a variable's gradient leaves of a slot's change.

    An average moves by little of itself, so that its old value nearly makes the new
    one, with any gradient. Where it does so without one, none has a part in it; nor in
    what does not change.
    """
    found = [
        _find_step(evidence, slot, path, step)
        for step in range(evidence.reference.steps)
    ]
    steps = [arrays for arrays in found if arrays is not None]
    after = np.concatenate([arrays[2] for arrays in steps]) if steps else np.zeros(0)
    if after.size < _ENOUGH:
        return float("inf")  # two weights fit as many numbers whatever they are
    base = np.concatenate([arrays[0] for arrays in steps])
    gradient = np.concatenate([arrays[1] for arrays in steps])
    size = measure_norm(after - base)
    if np.count_nonzero(base) < _OF_BASE:
        return float("inf")
    if not size or not _NEAR * size < _fit_rest([base], after) < np.inf:
        return float("inf")
    return min(_fit_rest([base, fed], after) for fed in (gradient, gradient**2)) / size


def _fit_rest(features: Sequence[Array], target: Array) -> float:
    """The norm of what multiples of some features leave of a target."""
    matrix = np.stack(features, axis=1)
    weights = solve_least_squares(matrix, target, determined=False)
    return float("inf") if weights is None else measure_norm(matrix @ weights - target)


def _find_step(
    evidence: Evidence, slot: VariableInfo, path: str, step: int
) -> tuple[Array, Array, Array] | None:
    """A slot before a step, a variable's gradient, the slot after it; all flat."""
    key = TraceKey(step=step, phase=slot.role, variable=slot.path, replica=WHOLE)
    after = evidence.reference.get(key)
    before = evidence.get_before(step, slot.role, slot.path)
    phases: tuple[Phase, ...] = ("applied_gradient", "local_gradient")
    keys = [k for p in phases for k in evidence.name_gradients(key, p, path)]
    seen = [value for k in keys if (value := evidence.reference.get(k)) is not None]
    if after is None or not seen:
        return None
    wide, gradient = densify(after), densify(seen[0])
    if gradient.shape != wide.shape:
        return None
    base = np.zeros_like(wide) if before is None else densify(before)
    return base.ravel(), gradient.ravel(), wide.ravel()
