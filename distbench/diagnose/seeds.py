"""Whether replicas draw random numbers by seeds of their own."""

from __future__ import annotations

from collections.abc import Mapping

from distbench.evidence import Evidence
from distbench.trace import OF_BATCH


def find_own_draws(evidence: Evidence) -> str:
    """Where replicas draw by a seed that one device does not have; empty if nowhere.

    As where the replica's number is a part of it.
    """
    seeds, others = (
        trace.notes.get("seeds") for trace in (evidence.reference, evidence.observed)
    )
    if not isinstance(seeds, Mapping) or not isinstance(others, Mapping):
        return ""
    own = [p for p in seeds if set(others.get(p, ())) - set(seeds[p])]
    return min(own, default="")


def find_seeds_of_batch(evidence: Evidence) -> frozenset[str]:
    """Where a step draws by a seed that is made of its examples."""
    seeds = evidence.reference.notes.get("seeds")
    if not isinstance(seeds, Mapping):
        return frozenset()
    return frozenset(
        place
        for place, found in seeds.items()
        if any(OF_BATCH in text.split() for text in found)
    )
