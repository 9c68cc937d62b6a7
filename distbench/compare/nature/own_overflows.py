"""Replicas whose own gradients overflow as those of their shards do, or have to."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from distbench.compare.arrays.ratio import SAME, fit_common_ratio
from distbench.evidence import Evidence
from distbench.trace import TraceKey
from distbench.trace.numbers import Array, densify


def find_own_overflows(evidence: Evidence, steps: Collection[int]) -> set[int]:
    """Steps in which no replica overflows where it cannot.

    A shard alone has the mean over its own examples. Whoever differentiates a share of
    that overflows where it does and nowhere else. Whoever differentiates more of it, as
    N times as much where gradients are averaged, may overflow sooner, and in what comes
    between as well: of that a shard alone says nothing. Nor does it where replicas
    exchange what their losses are made of. One without examples cannot overflow.

    Args:
        evidence: What was seen, as it was.
        steps: Those in which own gradients of some replica are not finite.
    """
    if evidence.observed.notes.get("exchange"):
        return set(steps)
    replicas = range(evidence.observed.replicas)
    return {
        step
        for step in steps
        if all(_may_overflow(evidence, step, replica) for replica in replicas)
    }


def _may_overflow(evidence: Evidence, step: int, replica: int) -> bool:
    shards = evidence.reference.get_shards(step)
    is_beyond = False
    for key, seen in _list_own(evidence, step, replica):
        odd = ~np.isfinite(seen)
        if not odd.any():
            continue
        alone = evidence.reference.get(key)
        if alone is None or alone.shape != seen.shape or not any(shards[replica:][:1]):
            return False
        is_beyond = is_beyond or bool((odd & np.isfinite(densify(alone))).any())
    return not is_beyond or _has_more(evidence, replica)


def _has_more(evidence: Evidence, replica: int) -> bool:
    """Whether a replica has more than its shard alone, in what is finite."""
    fit = fit_common_ratio(_pair_finite(evidence, replica))
    return fit is not None and fit.ratio > 1 + SAME


def _pair_finite(evidence: Evidence, replica: int) -> Iterator[tuple[Array, Array]]:
    """What a replica has of all steps, beside what its shard alone has."""
    for step in range(evidence.observed.steps):
        for key, seen in _list_own(evidence, step, replica):
            alone = evidence.reference.get(key)
            if alone is not None and alone.shape == seen.shape:
                due = densify(alone)
                both = np.isfinite(seen) & np.isfinite(due)
                yield seen[both], due[both]


def _list_own(
    evidence: Evidence, step: int, replica: int
) -> Iterator[tuple[TraceKey, Array]]:
    found = evidence.observed.select(step=step, phase="local_gradient", replica=replica)
    return ((key, densify(value)) for key, value in found)
