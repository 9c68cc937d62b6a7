"""What metrics show, where all that they make it of is right.

A metric divides one part of its state by another, or draws a curve through it. Each of
two parts may be what the replicas can add up to, one as a sum and the other as a mean,
and the quotient still be wrong by the number of replicas. Where it keeps the largest of
all examples, every replica has its own, and what is shown may be their sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from distbench.compare.arrays.measure import Margin
from distbench.compare.arrays.noise import Noise
from distbench.compare.arrays.pair import Pair
from distbench.compare.arrays.values import densify, name_value
from distbench.compare.state.totals import (
    is_total_wrong,
    list_extremes,
    list_given_alike,
    list_idle,
)
from distbench.evidence import Evidence
from distbench.trace import INITIAL, MetricInfo, TraceKey

SHOWN = "one device, what the metric shows for the global batch"


def list_results(
    evidence: Evidence, noise: Noise, totals: Sequence[Pair]
) -> Iterator[Pair]:
    """A pair for each metric and step, up to the first step with a wrong state.

    Of a metric whose state depends on how the examples are dealt out nothing is known,
    and one whose state is wrong shows that: neither is told here.
    """
    if evidence.tier == "exact":
        return  # on one device its metrics start from 0 in each step
    known = {(t.key.step, t.key.variable): not is_total_wrong(t) for t in totals}
    extremes = set(list_extremes(evidence, noise))
    known |= dict.fromkeys(list_given_alike(evidence, noise), True)
    idle = set(list_idle(evidence))
    for metric in evidence.observed.metrics:
        if not _starts_alike(evidence, metric):
            continue
        for step in range(evidence.observed.steps):
            # A part that no update touches is as right as before, and tells nothing.
            places = {(step, path) for path in metric.state} - idle
            if not places:
                continue
            # A mean of the shards' largest values holds an extreme beside its count,
            # and is meant to depend on the split.
            if not (all(known.get(place) for place in places) or places <= extremes):
                break
            yield from _pair_result(evidence, noise, metric, step)


def _starts_alike(evidence: Evidence, metric: MetricInfo) -> bool:
    """Whether the copies together start as one device does; a restored one may not."""
    for info in evidence.observed.variables:
        if info.path not in metric.state:
            continue
        key = TraceKey(step=INITIAL, phase=info.role, variable=info.path)
        start = evidence.reference.get(key)
        copies = [
            densify(value)
            for _, value in evidence.observed.select(
                step=INITIAL, phase=info.role, variable=info.path
            )
        ]
        if start is None or not copies:
            return False
        if not np.array_equal(np.sum(copies, axis=0), densify(start)):
            return False
    return True


def _pair_result(
    evidence: Evidence, noise: Noise, metric: MetricInfo, step: int
) -> Iterator[Pair]:
    key = TraceKey(step=step, phase="loss", variable=metric.name)
    seen, due = evidence.observed.get(key), evidence.reference.get(key)
    if seen is None or due is None:
        return
    observed, expected = densify(seen), densify(due)
    if observed.shape != expected.shape:
        return
    # All steps so far are in it, each with its noise.
    noises = [
        noise.find_margin(replace(key, step=s), expected).bound for s in range(step + 1)
    ]
    yield Pair(
        key=replace(key, phase="variable"),
        relation="result",
        against=SHOWN,
        observed=observed,
        expected=expected,
        margin=Margin(bound=sum(noises)),
        dtype=name_value(due),
    )
