"""Whether replicas draw random numbers by seeds of their own."""

from __future__ import annotations

from collections.abc import Mapping

from distbench.evidence import Evidence
from distbench.trace import OF_BATCH


def find_own_draws(evidence: Evidence) -> str:
    """Where replicas draw by a seed that one device does not have; empty if nowhere.

    As where the replica's number is a part of it.
    """
    return min(_list_own_draws(evidence), default="")


def adds_own_draws(evidence: Evidence) -> bool:
    """Whether replicas draw so, and all that state has of it are sums over all of them.

    Then no other numbers are due than those that each has.
    """
    own = _list_own_draws(evidence)
    past = evidence.observed.notes.get("past_sums")
    return bool(own) and isinstance(past, list) and not own & set(past)


def _list_own_draws(evidence: Evidence) -> frozenset[str]:
    seeds, others = (
        trace.notes.get("seeds") for trace in (evidence.reference, evidence.observed)
    )
    if not isinstance(seeds, Mapping) or not isinstance(others, Mapping):
        return frozenset()
    return frozenset(p for p in seeds if set(others.get(p, ())) - set(seeds[p]))


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
