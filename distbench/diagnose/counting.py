"""How often each step in flight was applied to a variable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from distbench.compare.envelope import Envelope, find_end
from distbench.compare.values import Array
from distbench.flight import Flight
from distbench.trace import Trace, TraceKey

_MOST_TIMES = 4
"""Applications of a step beyond its own that are told apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """Which steps a variable lacks, and which it has more than once.

    Attributes:
        lost: Numbers of the steps that are not in it.
        extra: By number of the step, how often it is in it beyond its own time.
        confidence: Share of the error's norm that this explains.
    """

    lost: tuple[int, ...]
    extra: Mapping[int, int]
    confidence: float


def count_updates(flight: Flight, envelope: Envelope) -> Count:
    """Which steps have to be left out or repeated to come to what was observed.

    One device ran the round without each step, and with each step twice. Greedily, the
    change that takes away most of what is left of the error is taken, a whole step at
    a time. Where each step has elements of its own these changes do not overlap, and
    the count is exact. A step counts whose own elements mostly lie beyond the envelope:
    within it they tell of the order alone.
    """
    key = envelope.key
    base = find_end(flight.orders[0], key)
    left = np.where(envelope.wrong, envelope.observed - base, 0.0)
    whole = float(np.linalg.norm(left))
    changes = [
        (place, sign, change)
        for place, sign, change in _list_changes(flight, key, base)
        if _is_beyond(change, envelope.wrong)
    ]
    counts: dict[int, int] = {}
    while np.isfinite(whole):
        norms = [
            float(np.linalg.norm(left - np.where(envelope.wrong, change, 0.0)))
            for _, _, change in changes
        ]
        if not norms or min(norms) >= float(np.linalg.norm(left)):
            break
        place, sign, change = changes[int(np.argmin(norms))]
        left = left - np.where(envelope.wrong, change, 0.0)
        counts[place] = counts.get(place, 0) + sign
        # What was lost is lost once, and is not applied again besides.
        changes = [
            item
            for item in changes
            if item[0] != place or (item[1] == sign > 0 and counts[place] < _MOST_TIMES)
        ]
    first = envelope.round * flight.in_flight
    rest = float(np.linalg.norm(left))
    return Count(
        lost=tuple(sorted(first + p for p, n in counts.items() if n < 0)),
        extra={first + p: n for p, n in sorted(counts.items()) if n > 0},
        confidence=max(0.0, 1 - rest / whole) if whole > 0 else 0.0,
    )


def _list_changes(
    flight: Flight, key: TraceKey, base: Array
) -> Iterator[tuple[int, int, Array]]:
    """What it changes to leave a step out (-1), or to repeat it (+1)."""
    kinds: tuple[tuple[int, Mapping[int, Trace]], ...] = (
        (-1, flight.lost),
        (1, flight.again),
    )
    for sign, traces in kinds:
        for place, trace in traces.items():
            change = find_end(trace, key) - base
            if np.any(change):
                yield place, sign, change


def _is_beyond(change: Array, wrong: Array) -> bool:
    square = change * change
    return float(np.sum(square[wrong])) > float(np.sum(square)) / 2
