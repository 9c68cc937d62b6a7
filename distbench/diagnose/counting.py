"""How often each step in flight was applied to a variable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from distbench.compare.envelope import Envelope, find_end, stack_orders
from distbench.compare.values import Array
from distbench.flight import Flight

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
    a time. Several changes add up, or multiply, whichever explains it better; see
    `_Sum` and `_Product`. Where each step has elements of its own the count is exact.
    """
    orders = stack_orders(flight, envelope.key)
    ends = dict(_list_ends(flight, envelope))
    added = _explain(_Sum(envelope.observed, orders, ends))
    decayed = _explain(_Product(envelope.observed, orders, ends))
    best = decayed if _is_better(decayed, added) else added
    counts: dict[int, int] = {}
    for place, sign in best.taken:
        counts[place] = counts.get(place, 0) + sign
    first = envelope.round * flight.in_flight
    return Count(
        lost=tuple(sorted(first + p for p, n in counts.items() if n < 0)),
        extra={first + p: n for p, n in sorted(counts.items()) if n > 0},
        confidence=max(0.0, 1 - best.left),
    )


_Change = tuple[int, int]
"""The place of a step, and -1 where it is left out, or 1 where it comes once more."""
_Ends = Mapping[_Change, Array]
"""What one device has after the round by each change."""


class _Effects(Protocol):
    """How what is changed comes together."""

    @property
    def changes(self) -> Sequence[_Change]:
        """Those that may be taken."""

    def measure(self, taken: Sequence[_Change]) -> float:
        """The norm of what some changes leave of the error."""


class _Sum:
    """State to which each step adds: what several steps change adds up.

    An element may be what any order makes of it, and what the changes add to that.
    """

    def __init__(self, observed: Array, orders: Array, ends: _Ends) -> None:
        self._observed = observed
        self._low, self._high = orders.min(axis=0), orders.max(axis=0)
        self._moved = {change: end - orders[0] for change, end in ends.items()}
        self.changes = tuple(ends)

    def measure(self, taken: Sequence[_Change]) -> float:
        at = self._observed - sum(self._moved[change] for change in taken)
        nearest = np.clip(at, self._low, self._high)
        return float(np.linalg.norm(at - nearest))


class _Product:
    """State that each step scales, as a slot that decays: what they change multiplies.

    A step that is left out takes its own part away, and what was there before it has
    not decayed by it: one device says by which factor, element by element. An element
    may be what any order makes of it, or as many times smaller or larger again.
    """

    def __init__(self, observed: Array, orders: Array, ends: _Ends) -> None:
        self._observed = observed
        low, high = orders.min(axis=0), orders.max(axis=0)
        wide = np.where(low * high > 0, low / high, 1.0)
        self._reach = np.stack([low * wide, low / wide, high * wide, high / wide])
        base = orders[0]
        self._factors = {
            change: np.where(base != 0, end / base, 1.0) for change, end in ends.items()
        }
        self.changes = tuple(ends)

    def measure(self, taken: Sequence[_Change]) -> float:
        reach = self._reach
        for change in taken:
            reach = reach * self._factors[change]
        nearest = np.clip(self._observed, reach.min(axis=0), reach.max(axis=0))
        return float(np.linalg.norm(self._observed - nearest))


def _list_ends(flight: Flight, envelope: Envelope) -> Iterator[tuple[_Change, Array]]:
    """What one device has after the round by each change.

    State that is read by one op and written by another loses updates, and what it had
    before weighs more then; it has none twice.
    """
    kinds = [(-1, flight.lost), (1, flight.again)]
    for sign, traces in kinds[:1] if envelope.phase in flight.torn else kinds:
        for place, trace in traces.items():
            yield (place, sign), find_end(trace, envelope.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Explained:
    """The changes that explain an error, and the share of its norm that they leave."""

    taken: Sequence[_Change]
    left: float


def _is_better(some: _Explained, other: _Explained) -> bool:
    """Whether an explanation leaves much less, or no more by fewer changes."""
    if some.left <= other.left and len(some.taken) < len(other.taken):
        return True
    return _NEEDED * some.left < other.left


def _explain(effects: _Effects) -> _Explained:
    whole = effects.measure(())
    if not 0 < whole < np.inf:
        return _Explained(taken=(), left=1.0)
    taken = _drop_needless(effects, _choose(effects))
    return _Explained(taken=taken, left=effects.measure(taken) / whole)


def _choose(effects: _Effects) -> list[_Change]:
    """The changes that take away most of the error, one after the other."""
    taken: list[_Change] = []
    changes = list(effects.changes)
    while changes:
        rests = [effects.measure([*taken, change]) for change in changes]
        if not min(rests) < effects.measure(taken):
            break
        place, sign = best = changes[int(np.argmin(rests))]
        taken.append(best)
        # What was lost is lost once, and is not applied again besides.
        may_repeat = sign > 0 and taken.count(best) < _MOST_TIMES
        changes = [c for c in changes if c[0] != place or (c == best and may_repeat)]
    return taken


def _drop_needless(effects: _Effects, taken: list[_Change]) -> list[_Change]:
    """The changes without which much more of the error would be left.

    Where the order matters the best explanation leaves something as well, and a step
    that has no part in it may chance to point there. One change always stays.
    """
    while len(taken) > 1:
        others = [taken[:n] + taken[n + 1 :] for n in range(len(taken))]
        rests = [effects.measure(rest) for rest in others]
        if min(rests) >= _NEEDED * effects.measure(taken):
            break
        taken = others[int(np.argmin(rests))]
    return taken
