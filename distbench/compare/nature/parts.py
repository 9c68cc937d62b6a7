"""A replica's value as a sum over its examples and a mean over them, each apart.

A loss may have terms of both kinds, and each program that trains several networks may
have a loss of each. With every example of a shard twice, what is a sum doubles and what
is a mean stays: of s + m and 2 s + m both follow. On the global batch the sums add up,
and a mean is that of the shards' by their sizes. What is divided by the number of
examples p times in place of once, as the square of a gradient of a mean, has 2^(1-p) as
much of each example twice, and of the global batch (n_r/G)^p.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from distbench.evidence import Evidence
from distbench.trace import TraceKey
from distbench.trace.numbers import Array, densify


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Parts:
    """What one device computes of a shard alone.

    Attributes:
        total: What adds up over examples.
        mean: What is a mean over them, or is there whatever the examples are; or what
            is divided by their number several times.
    """

    total: Array
    mean: Array


def split_parts(evidence: Evidence, key: TraceKey, power: int = 1) -> tuple[Parts, ...]:
    """The parts of loss or local gradient, by replica; empty unless all are known.

    Args:
        evidence: With each shard, and with each of its examples twice.
        key: Of the loss or the gradient.
        power: How often what is no sum is divided by the number of examples.
    """
    doubled = evidence.probes.get("doubled")
    once = evidence.reference.get_replicas(key)
    twice = () if doubled is None else doubled.get_replicas(key)
    if not (once and twice):
        return ()
    pairs = zip(map(densify, once), map(densify, twice), strict=True)
    left = 2.0 ** (1 - power)
    return tuple(
        Parts(total=(two - left * one) / (2 - left), mean=(2 * one - two) / (2 - left))
        for one, two in pairs
    )


def join_parts(
    shards: tuple[int, ...], parts: tuple[Parts, ...], power: int = 1
) -> Array:
    """What the parts come to on the global batch, of shards of these sizes."""
    examples = max(1, sum(shards))
    terms = [
        part.total + (size / examples) ** power * part.mean
        for part, size in zip(parts, shards, strict=True)
    ]
    return np.asarray(np.sum(terms, axis=0))
