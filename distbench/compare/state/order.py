"""Whether the order of the examples matters, by twins that have them in another one."""

from __future__ import annotations

import math

from distbench.compare.arrays.noise import Limits, Pool
from distbench.compare.state.samples import Sample, Samples
from distbench.evidence import Evidence
from distbench.trace import COMPUTED, STATE, SUMMED


def depends_on_order(permuted: Samples, limits: Limits) -> bool:
    """Whether it matters to a program in which order its examples come.

    Then a twin with permuted examples is no twin. That is so if it loses more than
    half of the digits, and more than what rounding does to the other twins.
    """
    return any(
        _is_moved(sample, limits[pool, None][0])
        for pool, found in permuted.items()
        if pool[0] in COMPUTED and (pool, None) in limits
        for sample in found
    )


def is_reduced_by_order(permuted: Samples, limits: Limits) -> bool:
    """Whether what is reduced depends on the order, though what goes in does not.

    So it is where the last slice of a row overwrites the others. In every twin and
    step: a rounding to few digits is moved by an order too, but now and then.
    """
    return any(
        all(_is_moved(sample, limits[pool, None][0]) for sample in found)
        for pool, found in permuted.items()
        if pool[0] in SUMMED and (pool, None) in limits
    )


def list_kept_in_order(
    evidence: Evidence, permuted: Samples, limits: Limits
) -> set[Pool]:
    """State that keeps examples in their order, though all that trains has none.

    A queue of keys or a buffer of transitions is such: what twins in another order hold
    of it is no rounding. In each step all of them differ, or none does: a rounding is
    moved by an order too, but now and then.
    """
    shared = {info.path for info in evidence.reference.variables if info.synchronised}
    kept: set[Pool] = set()
    for pool, found in permuted.items():
        phase, variable, _ = pool
        if phase in STATE and variable in shared and (pool, None) in limits:
            moved: dict[int, set[bool]] = {}
            for sample in found:
                is_moved = _is_moved(sample, limits[pool, None][0])
                moved.setdefault(sample.step, set()).add(is_moved)
            if {True} in moved.values() and {True, False} not in moved.values():
                kept.add(pool)
    return kept


def _is_moved(sample: Sample, limit: float) -> bool:
    return sample.error > max(math.sqrt(sample.u), limit)
