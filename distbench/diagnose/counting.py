"""How often each step in flight was applied to a variable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from distbench.compare.envelope import Envelope, find_end
from distbench.compare.values import Array
from distbench.flight import Flight
from distbench.trace import Trace

_MOST_TIMES = 4
"""Applications of a step beyond its own that are told apart."""
_NEEDED = 3
"""So many times as much of the error is left without a step that has a part in it.
Where the gradients of several steps overlap it was 4 times and more, and up to twice
without a step that had none."""


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
    error = np.where(envelope.wrong, envelope.observed - base, 0.0)
    whole = float(np.linalg.norm(error))
    taken: list[_Change] = []
    if whole < np.inf:
        changes = list(_list_changes(flight, envelope, base))
        taken = _drop_needless(error, _choose(error, changes))
    counts: dict[int, int] = {}
    for change in taken:
        counts[change.place] = counts.get(change.place, 0) + change.sign
    first = envelope.round * flight.in_flight
    return Count(
        lost=tuple(sorted(first + p for p, n in counts.items() if n < 0)),
        extra={first + p: n for p, n in sorted(counts.items()) if n > 0},
        confidence=(
            max(0.0, 1 - _measure_rest(error, taken) / whole)
            if 0 < whole < np.inf
            else 0.0
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Change:
    """What it changes to leave a step of a place out (sign -1), or to repeat it (1).

    Where something is wrong; elsewhere the orders hide it.
    """

    place: int
    sign: int
    moved: Array


def _choose(error: Array, changes: list[_Change]) -> list[_Change]:
    """The changes that take away most of the error, one after the other."""
    taken: list[_Change] = []
    left = error
    while changes:
        rests = [_measure_rest(left, [change]) for change in changes]
        if min(rests) >= _measure_rest(left, []):
            break
        best = changes[int(np.argmin(rests))]
        left = left - best.moved
        taken.append(best)
        times = sum(change.place == best.place for change in taken)
        # What was lost is lost once, and is not applied again besides.
        changes = [
            change
            for change in changes
            if change.place != best.place
            or (change.sign == best.sign > 0 and times < _MOST_TIMES)
        ]
    return taken


def _drop_needless(error: Array, taken: list[_Change]) -> list[_Change]:
    """The changes without which much more of the error would be left.

    Where the order matters the best explanation leaves something as well, and a step
    that has no part in it may chance to point there. One change always stays.
    """
    while len(taken) > 1:
        others = [taken[:n] + taken[n + 1 :] for n in range(len(taken))]
        rests = [_measure_rest(error, rest) for rest in others]
        if min(rests) >= _NEEDED * _measure_rest(error, taken):
            break
        taken = others[int(np.argmin(rests))]
    return taken


def _measure_rest(error: Array, taken: Sequence[_Change]) -> float:
    """The norm of what some changes leave of the error."""
    left = error
    for change in taken:
        left = left - change.moved
    return float(np.linalg.norm(left))


def _list_changes(flight: Flight, envelope: Envelope, base: Array) -> Iterator[_Change]:
    """Those of steps whose own elements mostly lie beyond the envelope."""
    kinds: tuple[tuple[int, Mapping[int, Trace]], ...] = (
        (-1, flight.lost),
        (1, flight.again),
    )
    for sign, traces in kinds:
        for place, trace in traces.items():
            moved = find_end(trace, envelope.key) - base
            if _is_beyond(moved, envelope.wrong):
                seen = np.where(envelope.wrong, moved, 0.0)
                yield _Change(place=place, sign=sign, moved=seen)


def _is_beyond(moved: Array, wrong: Array) -> bool:
    square = moved * moved
    return float(np.sum(square[wrong])) > float(np.sum(square)) / 2
