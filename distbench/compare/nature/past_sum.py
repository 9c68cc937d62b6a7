"""What one device's run says of what follows from the sum of its shards.

The whole batch gives another gradient than its shards add up to, by rounding or by the
grouping of its examples. Two things can be told of the cluster all the same. A step
that one device leaves out, because its gradient overflowed, is left out whatever the
rounding. And what makes a step of a gradient, a clip by its norm say, makes nearly the
same one of a gradient that is nearly the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from distbench.evidence import Evidence
from distbench.trace import Trace, TraceKey
from distbench.trace.numbers import Array, are_equal, densify, is_finite, measure_norm

Sums = Mapping[TraceKey, Array]
"""Local gradients of the whole batch, as the shards add up to them."""


def find_settled(evidence: Evidence, sums: Sums) -> frozenset[tuple[int, str]]:
    """The updates that one device leaves out, and so does a cluster that is right.

    Neither the whole batch nor the sum of its shards has a finite gradient, of the same
    variables, and nothing of it gets into the update: that leaves the variables finite,
    and is handed nothing but zeros and what is not finite, or nothing at all.

    Returns:
        By step and variable; with all else that there is, if a whole step is left out.
    """
    found: set[tuple[int, str]] = set()
    for step in {key.step for key in sums}:
        own = {k: v for k, v in sums.items() if k.step == step}
        calls = {
            call: {k: v for k, v in own.items() if k.call == call}
            for call in {key.call for key in own}
        }
        left = {c for c, part in calls.items() if _is_left_out(evidence, part)}
        moved = {key.variable for key in own if key.call not in left}
        found |= {(step, key.variable) for key in own if key.variable not in moved}
        if not moved:
            infos = evidence.reference.variables
            found |= {(step, path) for path in ("", *(info.path for info in infos))}
    return frozenset(found)


def _is_left_out(evidence: Evidence, sums: Sums) -> bool:
    """Whether one update is, as all that is known of it says."""
    return _overflows(evidence, sums) and _hands_on_nothing(evidence, sums)


def _overflows(evidence: Evidence, sums: Sums) -> bool:
    alike = [
        (is_finite(value), bool(np.isfinite(total).all()))
        for key, total in sums.items()
        if (value := evidence.reference.get(key)) is not None
    ]
    return all(whole == made for whole, made in alike) and (False, False) in alike


def _hands_on_nothing(evidence: Evidence, sums: Sums) -> bool:
    """Whether nothing of one update's gradients gets into what they train."""
    reference, keys = evidence.reference, list(sums)
    left = [
        (key, densify(value))
        for key in dict.fromkeys(replace(k, phase="variable", call=0) for k in keys)
        if (value := reference.get(key)) is not None
    ]
    sent = [reference.get(replace(key, phase="reduced_gradient")) for key in keys]
    handed = [densify(value) for value in sent if value is not None]
    if not handed:
        # One that was not watched may have been handed what of it was finite.
        before = [evidence.get_before(k.step, "variable", k.variable) for k, _ in left]
        return all(
            start is not None and are_equal(array, densify(start))
            for (_, array), start in zip(left, before, strict=True)
        )
    return all(np.isfinite(array).all() for _, array in left) and not any(
        np.any(np.isfinite(array) & (array != 0)) for array in handed
    )


def measure_slack(reference: Trace, sums: Sums) -> dict[TraceKey, float]:
    """How far the sum of the shards may lead from the reference's reduced gradients.

    Whatever a step does with a gradient g between its sum and its update, as long as
    that takes a number at most that follows from all of g, it moves by the share by
    which g does, and so does that number: |a/|a| - b/|b|| <= 2 |a - b| / |a|.
    Infinite where not both gradients are finite.
    """
    slack: dict[TraceKey, float] = {}
    for step, call in {(key.step, key.call) for key in sums}:
        here = {k: v for k, v in sums.items() if (k.step, k.call) == (step, call)}
        found = [(reference.get(key), total) for key, total in here.items()]
        wholes = [(densify(v), total) for v, total in found if v is not None]
        apart = _join_norms(whole - total for whole, total in wholes)
        size = _join_norms(whole for whole, _ in wholes)
        share = apart / size if size > 0 and math.isfinite(apart) else math.inf
        keys = [replace(key, phase="reduced_gradient") for key in here]
        handed = [v for key in keys if (v := reference.get(key)) is not None]
        bound = 2 * share * _join_norms(map(densify, handed))
        slack |= dict.fromkeys(keys, math.inf if math.isnan(bound) else bound)
    return slack


def _join_norms(arrays: Iterable[Array]) -> float:
    return math.hypot(*map(measure_norm, arrays))
