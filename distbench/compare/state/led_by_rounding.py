"""State that a step by hand moves by rounding alone, and the size of what moves it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

from distbench.compare.arrays.aligned import measure_apart
from distbench.compare.arrays.bounds import find_roundoff
from distbench.compare.arrays.noise import Whole
from distbench.evidence import Evidence
from distbench.trace import STATE, SUMMED, WHOLE, TraceKey
from distbench.trace.numbers import (
    name_value,
)

_FEW = 16
"""Roundings of its terms that a sum of a few shards stays well within."""

_Wholes = Mapping[TraceKey, Whole]


def find_led_by_rounding(
    evidence: Evidence, wholes: _Wholes, cancelled: _Wholes
) -> dict[TraceKey, Whole]:
    """Sizes of what state is rounded in that is made of gradients which cancel.

    A bias that starts at 0 is, behind such a gradient, a rate times rounding: it has no
    digit that replicas share. Its size is that of its largest change of any step, if
    that of a step is less than half of the digits of it. Where one device has taken the
    sum of the replicas' gradients, what that moves beside the sum's own rounding tells
    what one rounding of the terms moves, by any rule.

    Args:
        evidence: What was seen.
        wholes: Sizes of the reference's values.
        cancelled: Those of gradients of which the terms cancel.
    """
    found: dict[TraceKey, Whole] = {}
    still = _list_still(evidence, wholes)
    for key, size in (*still, *_list_moved(evidence, wholes, cancelled)):
        whole = found.get(key, wholes.get(key))
        if whole is not None and size > whole.size:
            found[key] = replace(whole, size=size)
    return found


def _list_still(
    evidence: Evidence, wholes: _Wholes
) -> Iterator[tuple[TraceKey, float]]:
    """State of steps that leave it nearly as it is, and its largest change."""
    summed = {key.variable for key in evidence.observed.values if key.phase in SUMMED}
    owners = {v.path: v.of or v.path for v in evidence.reference.variables}
    changes: dict[tuple[str, str], dict[TraceKey, float]] = {}
    for key in wholes:
        owner = owners.get(key.variable, key.variable)
        if key.phase not in STATE or owner in summed:
            continue  # an optimizer's state is held against what follows from sums
        before = evidence.get_before(key.step, key.phase, key.variable)
        if before is not None:
            change = measure_apart(evidence.reference.values[key], before)
            changes.setdefault((key.phase, key.variable), {})[key] = change
    for found in changes.values():
        # A change is a term of what is left as far as that is as large: what starts
        # from a number that stands for nothing known loses that.
        most = max(min(change, wholes[key].size) for key, change in found.items())
        for key, change in found.items():
            u = find_roundoff(name_value(evidence.reference.values[key]))
            if change < math.sqrt(u) * most < math.inf:
                yield key, most


def _list_moved(
    evidence: Evidence, wholes: _Wholes, cancelled: _Wholes
) -> Iterator[tuple[TraceKey, float]]:
    """State of steps with such gradients, and of what it moves by one rounding."""
    due = evidence.fed.due
    if due is None:
        return
    for step in sorted({k.step for k in cancelled if k.phase == "local_gradient"}):
        if not (times := _compare_roundings(evidence, wholes, cancelled, step)):
            continue
        for key, value in due.select(step=step, replica=0):
            expected = evidence.reference.get(key.at(WHOLE))
            if key.phase not in STATE or expected is None:
                continue
            if u := find_roundoff(name_value(expected)):
                yield key.at(WHOLE), times * measure_apart(value, expected) / u


def _compare_roundings(
    evidence: Evidence, wholes: _Wholes, cancelled: _Wholes, step: int
) -> float:
    """How many times one rounding of the terms is what the replicas' sum is rounded by.

    At most, of the gradients of a step, and no more than a few: it holds for state of
    other variables as well. 0 where their sum is off by more than that, or by nothing.
    """
    due, times = evidence.fed.due, 0.0
    if due is None:
        return 0.0
    for key, value in due.select(step=step, phase="local_gradient", replica=0):
        expected = evidence.reference.get(key.at(WHOLE))
        whole = cancelled.get(key.at(WHOLE), wholes.get(key.at(WHOLE)))
        if expected is None or whole is None:
            return 0.0
        rounding = find_roundoff(name_value(expected)) * whole.size
        gap = measure_apart(value, expected)
        if gap > _FEW * rounding:
            return 0.0
        if key.at(WHOLE) in cancelled and gap:
            times = max(times, min(rounding / gap, _FEW))
    return times
