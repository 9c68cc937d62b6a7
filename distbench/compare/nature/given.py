"""What replicas exchange before the gradient, and shards that are given it."""

from __future__ import annotations

from dataclasses import replace

from distbench.compare.arrays.noise import Noise
from distbench.compare.nature.grouping import find_nature
from distbench.evidence import Evidence
from distbench.trace import COMPUTED, WHOLE, Values


def exchanges(evidence: Evidence, kind: str) -> bool:
    """Whether the replicas' losses hold `data` or `features` of each other.

    Args:
        evidence: What was observed.
        kind: See `distbench.worker.taps.exchange.Exchange`.
    """
    return evidence.observed.notes.get("exchange") == kind


def makes_whole_exchanged(evidence: Evidence, noise: Noise) -> bool:
    """Whether shards that are given what the global batch exchanges make up its value.

    Where they do not without, what replicas exchange is all that the grouping changes.
    """
    given = give_exchanged(evidence)
    return given is not None and not find_nature(given, noise).grouped


def give_exchanged(evidence: Evidence) -> Evidence | None:
    """With shards that are given what the global batch exchanges, for those alone.

    None where one device did not run such.
    """
    given = evidence.probes.get("exchanged")
    if given is None or "exchanged-regrouped" not in evidence.probes:
        return None
    # Shards that were given nothing in some step say nothing about it.
    whole = Values(evidence.reference.values).keep(
        lambda key: key.replica == WHOLE or key.phase not in COMPUTED
    )
    # Held, and not read: large ones lie on disk.
    values = Values({**whole.held, **Values(given.values).held})
    reference = replace(evidence.reference, values=values)
    # With each example twice, a mean is told from a sum beside it.
    probes = {
        name: trace
        for name in ("regrouped", "doubled")
        if (trace := evidence.probes.get(f"exchanged-{name}")) is not None
    }
    met = {n: t for n, t in evidence.probes.items() if n.startswith("met-")}
    return replace(evidence, reference=reference, probes={**probes, **met})
