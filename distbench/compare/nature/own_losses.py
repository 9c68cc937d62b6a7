"""Replicas whose losses are those of their own shards, which make up no whole.

Batch statistics of the own examples are such, and so are contrasts within a shard. What
one device makes of the global batch is then no measure of anything that follows.
"""

from __future__ import annotations

import numpy as np

from distbench.compare.arrays.noise import Noise
from distbench.evidence import Evidence
from distbench.trace import WHOLE, TraceKey
from distbench.trace.numbers import Array, densify


def has_own_losses(evidence: Evidence, noise: Noise) -> bool:
    """Whether that is so in every step, as far as the losses tell.

    A sum over the own examples counts as it is, and a mean by their number: which of
    them it is the shard with its examples twice tells. A loss that a narrower dtype
    rounds may lie off by what is lost.
    """
    doubled = evidence.probes.get("doubled")
    measure = evidence.measure
    if measure.shards_known or evidence.tier == "free" or doubled is None:
        return False
    is_apart = []
    for step in range(evidence.reference.steps):
        key = TraceKey(step=step, phase="loss", variable="", replica=WHOLE)
        whole = evidence.reference.get(key)
        shards, twice, seen = (
            np.array([densify(value) for value in trace.get_replicas(key)])
            for trace in (evidence.reference, doubled, evidence.observed)
        )
        if whole is None or shards.ndim != 1 or shards.shape != twice.shape:
            return False
        total = densify(whole)
        margin = noise.find_margin(key, total).bound + measure.lost * np.abs(total)
        shares = _weigh(evidence, step, shards, twice, margin)
        if shares is None or shares.shape != seen.shape:
            return False
        n = len(shares)
        if not any(np.all(np.abs(seen - t * shares) <= t * margin) for t in (1, n)):
            return False
        is_apart.append(bool(np.abs(np.sum(shares) - total) > 2 * n * margin))
    return any(is_apart)


def _weigh(
    evidence: Evidence, step: int, shards: Array, twice: Array, margin: Array | float
) -> Array | None:
    """What shards count; None where a double is neither twice that nor the same."""
    if np.all(np.abs(twice - 2 * shards) <= 4 * margin):
        return shards
    if np.all(np.abs(twice - shards) <= 4 * margin):
        sizes = np.array(evidence.reference.get_shards(step), np.float64)
        return np.asarray(shards * sizes / max(1.0, float(np.sum(sizes))))
    return None
