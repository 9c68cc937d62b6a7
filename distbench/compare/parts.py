"""A replica's value as a sum over its examples and a mean over them, each apart.

A loss may have terms of both kinds, and each program that trains several networks may
have a loss of each. With every example of a shard twice, what is a sum doubles and what
is a mean stays: of s + m and 2 s + m both follow. On the global batch the sums add up,
and a mean is that of the shards' by their sizes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from distbench.compare.values import Array, densify
from distbench.evidence import Evidence
from distbench.trace import TraceKey


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Parts:
    """What one device computes of a shard alone.

    Attributes:
        total: What adds up over examples.
        mean: What is a mean over them, or is there whatever the examples are.
    """

    total: Array
    mean: Array


def split_parts(evidence: Evidence, key: TraceKey) -> tuple[Parts, ...]:
    """The parts of loss or local gradient, by replica; empty unless all are known."""
    doubled = evidence.probes.get("doubled")
    once = evidence.reference.get_replicas(key)
    twice = () if doubled is None else doubled.get_replicas(key)
    if not (once and twice):
        return ()
    pairs = zip(map(densify, once), map(densify, twice), strict=True)
    return tuple(Parts(total=two - one, mean=2 * one - two) for one, two in pairs)


def join_parts(shards: tuple[int, ...], parts: tuple[Parts, ...]) -> Array:
    """What the parts come to on the global batch, of shards of these sizes."""
    examples = max(1, sum(shards))
    terms = [
        part.total + size / examples * part.mean
        for part, size in zip(parts, shards, strict=True)
    ]
    return np.asarray(np.sum(terms, axis=0))
