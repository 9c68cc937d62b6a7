"""What metrics show, where all that they make it of is right.

A metric divides one part of its state by another, or draws a curve through it. Each of
two parts may be what the replicas can add up to, one as a sum and the other as a mean,
and the quotient still be wrong by the number of replicas. Where it keeps the largest of
all examples, every replica has its own, and what is shown may be their sum.

What shards leave may tell nothing of a state, as where each takes a whole penalty. A
number that is then an N-th of one device's in every step, or N times it, is so by no
chance: how the examples are dealt out would make another one of each step.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from distbench.compare.arrays.bounds import find_roundoff
from distbench.compare.arrays.measure import Margin, measure_error
from distbench.compare.arrays.noise import Noise
from distbench.compare.arrays.pair import Pair
from distbench.compare.arrays.ratio import SAME
from distbench.compare.state.totals import (
    is_total_wrong,
    list_extremes,
    list_given_alike,
    list_idle,
)
from distbench.evidence import Evidence
from distbench.trace import INITIAL, MetricInfo, TraceKey
from distbench.trace.numbers import Array, densify, measure_size, name_value

SHOWN = "one device, what the metric shows for the global batch"
SCALED = "one device, of whose the metric shows the same multiple in every step"

_ROUNDINGS = 4
"""So often a quotient of whole numbers may have been rounded on its way."""
_BY_CHANCE = 0.1
"""Share of all numbers that may be a quotient but for rounding, to tell one by that."""


def list_results(
    evidence: Evidence, noise: Noise, totals: Sequence[Pair]
) -> Iterator[Pair]:
    """A pair for each metric and step, up to the first step with a wrong state.

    Of a metric whose state depends on how the examples are dealt out nothing is known
    but a multiple, and one whose state is wrong shows that: neither is told here.
    """
    if evidence.tier == "exact":
        return  # on one device its metrics start from 0 in each step
    known = {(t.key.step, t.key.variable): not is_total_wrong(t) for t in totals}
    extremes = set(list_extremes(evidence, noise))
    known |= dict.fromkeys(list_given_alike(evidence, noise), True)
    shown = dict.fromkeys(extremes, True) | known
    idle = set(list_idle(evidence))
    for metric in evidence.observed.metrics:
        if not _starts_alike(evidence, metric):
            continue
        if _is_unknown(evidence, metric, shown, idle):
            yield from _pair_multiples(evidence, noise, metric, idle)
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


def _is_unknown(
    evidence: Evidence,
    metric: MetricInfo,
    known: Mapping[tuple[int, str], bool],
    idle: Container[tuple[int, str]],
) -> bool:
    """Whether nothing is ever known of some of its state, and none is wrong."""
    steps = range(evidence.observed.steps)
    found = [
        {known.get((step, path)) for step in steps if (step, path) not in idle}
        for path in metric.state
    ]
    return {None} in found and not any(False in places for places in found)


def _pair_multiples(
    evidence: Evidence, noise: Noise, metric: MetricInfo, idle: set[tuple[int, str]]
) -> Iterator[Pair]:
    """A pair for each step of a metric that shows N times one device's, or an N-th.

    Of quotients of counts one may be N times another by chance, and of one step alone
    any number. Zeros tell nothing.
    """
    fed = [
        step
        for step in range(evidence.observed.steps)
        if not {(step, path) for path in metric.state} <= idle
    ]
    pairs = [
        pair for step in fed for pair in _pair_result(evidence, noise, metric, step)
    ]
    n = evidence.observed.replicas
    telling = [pair for pair in pairs if not _is_quotient(evidence, metric, pair)]
    if n < 2 or len(telling) < 2:
        return
    shown = [p for p in pairs if measure_size(p.expected) or measure_size(p.observed)]
    is_part = all(_is_due(pair, pair.observed * n) for pair in shown)
    if is_part or all(_is_due(pair, pair.observed / n) for pair in shown):
        yield from (replace(pair, against=SCALED) for pair in pairs)


def _is_due(pair: Pair, numbers: Array) -> bool:
    """Whether numbers are those that are due, which are more than noise.

    Of integers there is none.
    """
    if not pair.margin.widest / SAME < measure_size(pair.expected) < np.inf:
        return False
    return not measure_error(numbers, pair.expected, pair.margin).wrong


def _is_quotient(evidence: Evidence, metric: MetricInfo, pair: Pair) -> bool:
    """Whether all that is due are counts, of pairs at most, over counts of examples.

    Of many examples any number is such a quotient, as near as rounding tells: it is
    taken for one if the metric makes it of whole numbers.
    """
    steps = range(pair.key.step + 1)
    most = sum(sum(evidence.reference.get_shards(step)) for step in steps)
    left = _ROUNDINGS * find_roundoff(pair.dtype)
    counts = _holds_counts(evidence, metric, pair.key.step)

    def is_quotient(size: float) -> bool:
        if size == 0:
            return True
        limit = int(min(most, most**2 / size))
        if limit < 1 or (limit**2 * left * size > _BY_CHANCE and not counts):
            return False
        near = float(Fraction(size).limit_denominator(limit))
        return abs(near - size) <= left * size

    sizes: Array = np.abs(pair.expected).astype(np.float64).ravel()
    return all(is_quotient(float(size)) for size in sizes if np.isfinite(size))


def _holds_counts(evidence: Evidence, metric: MetricInfo, step: int) -> bool:
    """Whether all that one device holds of it after a step are whole numbers."""
    found = [
        evidence.reference.get(TraceKey(step=step, phase=i.role, variable=i.path))
        for i in evidence.reference.variables
        if i.path in metric.state
    ]
    held = [densify(value) for value in found if value is not None]
    return all(np.array_equal(np.rint(value), value) for value in held)


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
