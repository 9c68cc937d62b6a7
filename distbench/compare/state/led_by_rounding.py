"""State that a step by hand moves by rounding alone, and the size of what moves it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product

from distbench.compare.arrays.aligned import measure_apart
from distbench.compare.arrays.bounds import find_roundoff
from distbench.compare.arrays.noise import Whole
from distbench.compare.state.cancelled import measure_shards
from distbench.evidence import Evidence
from distbench.trace import STATE, SUMMED, WHOLE, Trace, TraceKey
from distbench.trace.numbers import name_value

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
    sum of the replicas' gradients, or their mean, and it is right, what that moves
    beside its own rounding tells what one rounding of the terms moves, by any rule.

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
    steps = sorted({key.step for key in cancelled if key.phase == "local_gradient"})
    for step, fed in product(steps, (evidence.fed.due, evidence.fed.mean)):
        if fed is None:
            continue
        times = _compare_roundings(evidence.reference, fed, wholes, cancelled, step)
        if not times:
            continue
        for key, value in fed.select(step=step, replica=0):
            expected = evidence.reference.get(key.at(WHOLE))
            if key.phase not in STATE or expected is None:
                continue
            if u := find_roundoff(name_value(expected)):
                yield key.at(WHOLE), times * measure_apart(value, expected) / u


def _compare_roundings(
    reference: Trace, fed: Trace, wholes: _Wholes, cancelled: _Wholes, step: int
) -> float:
    """How many times one rounding of the terms is what a device was fed is off by.

    At most, of the gradients of a step, and no more than a few: it holds for state of
    other variables as well. 0 where one is off by more than that, or all by nothing.
    """
    times = 0.0
    for key, value in fed.select(step=step, phase="local_gradient", replica=0):
        whole = key.at(WHOLE)
        expected, known = reference.get(whole), cancelled.get(whole, wholes.get(whole))
        if expected is None or known is None:
            return 0.0
        u, gap = find_roundoff(name_value(expected)), measure_apart(value, expected)
        # Where terms cancel in part, the shards have more of them than the whole batch.
        if gap > _FEW * u * max(known.size, measure_shards(reference, whole)):
            return 0.0
        if whole in cancelled and gap:
            times = max(times, min(u * known.size / gap, _FEW))
    return times
