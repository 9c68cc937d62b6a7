"""Own gradients that a step by hand adds up, where only a look inside has seen them.

Of several gradients of a variable the taps have none, so that a loss that is not its
share, or a mean of the own examples, would show in the state alone, as wrong sums do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from distbench.compare.arrays.ratio import are_alike, fit_multiple
from distbench.compare.inside.given import gradients_add_up, list_given
from distbench.compare.inside.nearness import find_lost
from distbench.compare.inside.of_micro_steps import take_sums
from distbench.evidence import Evidence
from distbench.fed import Fed, get_factor
from distbench.trace import (
    UPDATED,
    WHOLE,
    Trace,
    TraceKey,
    Values,
    get_numbers,
)
from distbench.trace.numbers import Array, densify


def take_unseen(evidence: Evidence) -> Evidence:
    """The evidence, with what tapes gave as local gradients, where that is wrong.

    Where it adds up, what is made of it is told by the state (see `shown_sums`).

    Args:
        evidence: What was seen. It stays as it is where nobody looked into all of its
            steps.
    """
    inside = evidence.inside
    if inside is None or evidence.sees_gradients or evidence.tier == "free":
        return evidence
    steps = range(evidence.observed.steps)
    is_known = inside.observed.steps == len(steps) and all(
        any(list_given(inside.observed, inside.reference, step)) for step in steps
    )
    if not is_known or all(gradients_add_up(inside, step) for step in steps):
        return evidence
    summed = take_sums(evidence, inside, steps)
    return replace(
        summed,
        twins=tuple(_round_sums(twin, summed.reference) for twin in evidence.twins),
        fed=_feed_seen(summed),
    )


def _round_sums(twin: Trace, reference: Trace) -> Trace:
    """A twin whose sums, which it has not, are off by what a look inside allows."""
    values = Values(twin.values)
    for key, value in reference.select(phase="local_gradient", replica=WHOLE):
        lost = find_lost(get_numbers(value).dtype)
        values[key] = densify(value) * (1 + lost)
    return replace(twin, values=values)


def _feed_seen(evidence: Evidence) -> Fed:
    """What one device would make of the replicas' gradients, as far as it is linear.

    It was given multiples of its own. What these move in proportion, others do.
    """
    fed, n = evidence.fed, evidence.observed.replicas
    weighed = {get_factor(trace): trace for trace in fed.sums}
    silent = weighed.get(0.0)
    if silent is None or len(weighed) < 2:
        return replace(fed, sums=())
    rates = _find_rates(evidence, silent, weighed)
    seen = _add_up(evidence.observed, range(n))

    def feed(factor: float) -> Trace:
        values: Values[TraceKey] = Values()
        for key, (source, rate) in rates.items():
            start = densify(silent.values[key])
            values[key] = start + factor * rate * seen[source]
        notes = {**silent.notes, "factor": factor}
        return replace(silent, values=values, notes=notes)

    if not rates:
        return replace(fed, sums=())
    return replace(fed, due=feed(1.0), mean=feed(1 / n), sums=tuple(map(feed, weighed)))


def _find_rates(
    evidence: Evidence, silent: Trace, weighed: Mapping[float, Trace]
) -> dict[TraceKey, tuple[TraceKey, float]]:
    """Of linear state, by which gradient it moves, and how far for each unit of it."""
    own = _add_up(evidence.reference, [WHOLE])
    found: dict[TraceKey, tuple[TraceKey, float]] = {}
    for key, start in silent.select(replica=0):
        if key.phase not in UPDATED:
            continue
        moves = [
            (densify(trace.values[key]) - densify(start)) / factor
            for factor, trace in weighed.items()
            if factor
        ]
        for source, gradient in own.items():
            if source.step != key.step or gradient.shape != moves[0].shape:
                continue
            rates = [fit_multiple(move, gradient) for move in moves]
            known = [rate for rate in rates if rate is not None]
            if len(known) == len(moves) and are_alike(known):
                found[key] = source, known[0]
    return found


def _add_up(trace: Trace, replicas: Sequence[int]) -> dict[TraceKey, Array]:
    found: dict[TraceKey, Array] = {}
    for replica in replicas:
        for key, value in trace.select(phase="local_gradient", replica=replica):
            whole = key.at(WHOLE)
            found[whole] = found.get(whole, 0.0) + densify(value)
    return found
