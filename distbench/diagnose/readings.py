"""What an evidence may be held against, where one device alone does not settle it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from distbench.compare.nature import find_nature, weigh_shards
from distbench.compare.noise import Noise
from distbench.evidence import Evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """An evidence with what its reference is good for.

    Attributes:
        evidence: What to compare.
        note: What the user should know of it; empty where all is known.
        by_shards: Whether each replica is held against its own shard.
        first_known: Whether loss and local gradients can be judged at all.
    """

    evidence: Evidence
    note: str = ""
    by_shards: bool = False
    first_known: bool = True


def list_readings(evidence: Evidence, noise: Noise) -> Iterator[Reading]:
    """From the strictest on; a later one counts only if those before it fail.

    A program whose result depends on the grouping of its examples cannot arrive at
    what one device computes from the global batch. Its replicas are held against their
    own shards; where nothing says how these are to be weighed, against what follows
    from their own gradients.
    """
    yield Reading(evidence=evidence)
    nature = find_nature(evidence, noise)
    if not nature.grouped:
        return
    words = (
        "note: on one device the result depends on which examples are together in a "
        "batch, so"
    )
    # A free run has left the reference behind after its first step.
    if nature.weights is not None and evidence.tier != "free":
        yield Reading(
            evidence=weigh_shards(evidence, nature.weights),
            note=f"{words} each replica is compared with its own shard on one device",
            by_shards=True,
        )
    yield Reading(
        evidence=replace(evidence, known=()),
        note=f"{words} loss and local gradients cannot be judged, only what follows "
        "from them",
        first_known=False,
    )
