"""State that no correction reaches, as it lies before what is corrected."""

from __future__ import annotations

import numpy as np

from distbench.compare.arrays.copies import are_same
from distbench.compare.arrays.ratio import SAME, are_same_factors, fit_multiple
from distbench.diagnose.stages.kept_late import list_keepers
from distbench.diagnose.stages.overflowed import is_decided_so
from distbench.evidence import Evidence
from distbench.trace import STATE, WHOLE
from distbench.trace.numbers import Array, densify, measure_size
from distbench.verdict import Finding

Place = tuple[int, int]
"""A step and a replica."""


def goes_before(
    found: Finding, first: Finding, corrected: Evidence, seen: Evidence
) -> bool:
    """Whether a finding of a corrected run is the one that was corrected.

    So it is of an accumulator from which a program takes the gradient that it hands
    over: a right gradient in place of that one changes no bit of it, and it is wrong by
    the same factor, or by one of the two that make it up. What a program keeps of a sum
    that it does not hand over is off by as much, or by a multiple. State that keeps the
    gradient for a later step lies before it as well, and a loss scale or its counter,
    where what overflowed on some replicas decides about both.

    Args:
        found: Of the corrected run.
        first: What was corrected.
        corrected: What the cluster left with the right value put in.
        seen: What it left before.
    """
    if not _is_untouched(found, corrected, seen):
        return False
    keeps = set(found.variables) <= list_keepers(seen, [first])
    return (
        keeps
        or _has_same_factor(first, found)
        or _is_off_by_it(found, first, seen)
        or is_decided_so(found, first, seen)
    )


def _is_untouched(found: Finding, corrected: Evidence, seen: Evidence) -> bool:
    if corrected.tier == "free":
        return False
    pairs = [
        (value, seen.observed.get(key))
        for step in range(corrected.observed.steps)
        for key, value in corrected.observed.select(step=step)
        if key.phase in STATE and key.variable in found.variables
    ]
    return bool(pairs) and all(
        before is not None and are_same(value, before) for value, before in pairs
    )


def _is_off_by_it(found: Finding, first: Finding, seen: Evidence) -> bool:
    """Whether state is off by a multiple of what the sums that it is made with are."""
    infos = seen.observed.by_path
    sums = {path: _list_errors(seen, first, path) for path in first.variables}
    return all(
        any(
            _is_multiple(_list_errors(seen, found, path), errors)
            for source, errors in sums.items()
            if infos[path].of in ("", source)
        )
        for path in found.variables
    )


def _list_errors(evidence: Evidence, finding: Finding, path: str) -> dict[Place, Array]:
    """What a value of a finding is off by, by step and replica."""
    observed, reference = evidence.observed, evidence.reference
    return {
        (key.step, key.replica): densify(value) - densify(due)
        for key, value in observed.select(variable=path)
        if key.phase == finding.phase
        and key.step >= 0
        and (due := reference.get(key.at(WHOLE))) is not None
    }


def _is_multiple(errors: dict[Place, Array], others: dict[Place, Array]) -> bool:
    pairs = [
        (error, others[place])
        for place, error in errors.items()
        if place in others and error.shape == others[place].shape
    ]
    if not pairs or len(pairs) < len(errors):
        return False
    left = np.concatenate([error.ravel() for error, _ in pairs])
    right = np.concatenate([other.ravel() for _, other in pairs])
    # Of one number, or of equal copies of it, any other is a multiple.
    if not right.size or np.ptp(right) <= SAME * measure_size(right):
        return False
    return fit_multiple(left, right) is not None


def _has_same_factor(first: Finding, found: Finding) -> bool:
    if first.ratio is None or found.ratio is None or found.ratio <= 0:
        return False
    return any(are_same_factors(first.ratio, found.ratio**power) for power in (1, 2))
