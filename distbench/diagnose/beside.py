"""State that no correction reaches, as it lies before what is corrected."""

from __future__ import annotations

from distbench.compare.ratio import are_same_factors
from distbench.compare.values import are_equal, densify
from distbench.diagnose.kept_late import list_keepers
from distbench.diagnose.overflowed import is_decided_so
from distbench.evidence import Evidence
from distbench.trace import STATE
from distbench.verdict import Finding


def goes_before(
    found: Finding, first: Finding, corrected: Evidence, seen: Evidence
) -> bool:
    """Whether a finding of a corrected run is the one that was corrected.

    So it is of an accumulator from which a program takes the gradient that it hands
    over: a right gradient in place of that one changes no bit of it, and it is wrong by
    the same factor, or by one of the two that make it up. State that keeps the gradient
    for a later step lies before it as well, and a loss scale or its counter, where what
    overflowed on some replicas decides about both.

    Args:
        found: Of the corrected run.
        first: What was corrected.
        corrected: What the cluster left with the right value put in.
        seen: What it left before.
    """
    if not _is_untouched(found, corrected, seen):
        return False
    keeps = set(found.variables) <= list_keepers(seen, [first])
    return keeps or _has_same_factor(first, found) or is_decided_so(found, first, seen)


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
        before is not None and are_equal(densify(value), densify(before))
        for value, before in pairs
    )


def _has_same_factor(first: Finding, found: Finding) -> bool:
    if first.ratio is None or found.ratio is None or found.ratio <= 0:
        return False
    return any(are_same_factors(first.ratio, found.ratio**power) for power in (1, 2))
