"""How often each step in flight was applied to a variable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from distbench.compare.envelope import Envelope, find_end, stack_orders
from distbench.compare.values import Array
from distbench.diagnose.plausible import count_saved
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
        saved: By how much these steps tell the error in fewer words than the next best
            account of it does, in nats: that it is what it is, or, of state that no
            other step may overwrite in part, that they count by halves. Not above 0
            where they only happen to point there. Of several variables and rounds it
            adds up.
    """

    lost: tuple[int, ...]
    extra: Mapping[int, int]
    confidence: float
    saved: float


def count_updates(flight: Flight, envelope: Envelope) -> Count:
    """Which steps have to be left out or repeated to come to what was observed.

    One device ran the round without each step, and with each step twice. Greedily, the
    change that takes away most of what is left of the error is taken, a whole step at
    a time. Several changes add up, or multiply, whichever explains it better; see
    `_Sum` and `_Product`. Where each step has elements of its own the count is exact.
    """
    orders = stack_orders(flight, envelope.key)
    parts = _list_parts(flight, envelope, dict(_list_ends(flight, envelope)))
    in_part = envelope.variable in flight.torn_paths
    reach = orders.max(axis=0) - orders.min(axis=0)
    added = _explain(_Sum(envelope.observed, orders, parts), reach, in_part=in_part)
    decayed = _explain(
        _Product(envelope.observed, orders, parts), reach, in_part=in_part
    )
    best = decayed if _is_better(decayed, added) else added
    steps: dict[int, int] = {}
    for place, sign, _ in _join_parts(best.taken, parts):
        steps[place] = steps.get(place, 0) + sign
    first = envelope.round * flight.in_flight
    return Count(
        lost=tuple(sorted(first + p for p, n in steps.items() if n < 0)),
        extra={first + p: n for p, n in sorted(steps.items()) if n > 0},
        confidence=max(0.0, 1 - best.left),
        saved=best.saved,
    )


Places = npt.NDArray[np.bool_]
"""Which elements are meant."""


class _Change(NamedTuple):
    """A step that is left out, or comes once more.

    Attributes:
        place: Of the step.
        sign: -1 where it is left out, or 1 where it comes once more.
        by: Of the step that overwrote it, where that wrote a part of it alone.
    """

    place: int
    sign: int
    by: int | None = None


_Ends = Mapping[_Change, Array]
"""What one device has after the round by each change of a whole step."""


class _Part(NamedTuple):
    """What one device has by a change of a whole step, and where it is changed."""

    end: Array
    where: Places


_Parts = Mapping[_Change, _Part]


class _Effects(Protocol):
    """How what is changed comes together."""

    parts: _Parts
    observed: Array

    def find_rest(self, taken: Sequence[_Change], share: float = 1.0) -> Array:
        """By how much each element is off with some changes, or a share of each."""


class _Sum:
    """State to which each step adds: what several steps change adds up.

    An element may be what any order makes of it, and what the changes add to that.
    """

    def __init__(self, observed: Array, orders: Array, parts: _Parts) -> None:
        self.observed, self.parts = observed, parts
        self._low, self._high = orders.min(axis=0), orders.max(axis=0)
        self._base = orders[0]

    def find_rest(self, taken: Sequence[_Change], share: float = 1.0) -> Array:
        at = self.observed
        for place, sign, where in _join_parts(taken, self.parts):
            end = self.parts[_Change(place, sign)].end
            at = at - share * np.where(where, end - self._base, 0.0)
        return np.asarray(at - np.clip(at, self._low, self._high))


class _Product:
    """State that each step scales, as a slot that decays: what they change multiplies.

    A step that is left out takes its own part away, and what was there before it has
    not decayed by it: one device says by which factor, element by element. An element
    may be what any order makes of it, or as many times smaller or larger again.
    """

    def __init__(self, observed: Array, orders: Array, parts: _Parts) -> None:
        self.observed, self.parts = observed, parts
        low, high = orders.min(axis=0), orders.max(axis=0)
        wide = np.where(low * high > 0, low / high, 1.0)
        self._reach = np.stack([low * wide, low / wide, high * wide, high / wide])
        self._base = orders[0]

    def find_rest(self, taken: Sequence[_Change], share: float = 1.0) -> Array:
        reach, base = self._reach, self._base
        for place, sign, where in _join_parts(taken, self.parts):
            end = self.parts[_Change(place, sign)].end
            reach = reach * np.where(where & (base != 0), end / base, 1.0) ** share
        nearest = np.clip(self.observed, reach.min(axis=0), reach.max(axis=0))
        return np.asarray(self.observed - nearest)


def _list_parts(flight: Flight, envelope: Envelope, ends: _Ends) -> _Parts:
    """All changes that may be taken, of whole steps and of parts of them.

    A step that writes some rows of what it has read overwrites others there alone: two
    steps that are under way together may lose the rows that both have.
    """
    base = find_end(flight.orders[0], envelope.key)
    moves = {
        change: np.not_equal(end, base) & ~(np.isnan(end) & np.isnan(base))
        for change, end in ends.items()
    }
    parts = {
        change: _Part(end, np.ones(np.shape(base), bool))
        for change, end in ends.items()
    }
    if envelope.variable not in flight.torn_paths:
        return parts
    for lost, end in ends.items():
        for other in ends:
            both = moves[lost] & moves[other]
            is_part = both.any() and not np.array_equal(both, moves[lost])
            if other != lost and is_part and _overlap(flight, envelope, lost, other):
                parts[lost._replace(by=other.place)] = _Part(end, both)
    return parts


def _overlap(flight: Flight, envelope: Envelope, one: _Change, two: _Change) -> bool:
    """Whether two steps of a round were under way at the same time."""
    first = envelope.round * flight.in_flight
    one_at, two_at = (flight.times[first + change.place] for change in (one, two))
    return one_at[0] <= two_at[1] and two_at[0] <= one_at[1]


def _join_parts(
    taken: Sequence[_Change], parts: _Parts
) -> Iterator[tuple[int, int, Places]]:
    """Place, sign and where; what several steps overwrote of one is lost once."""
    lost: dict[int, Places] = {}
    for change in taken:
        where = parts[change].where
        if change.sign > 0:
            yield change.place, change.sign, where
        else:
            lost[change.place] = where | lost.get(change.place, np.zeros_like(where))
    for place, where in lost.items():
        yield place, -1, where


def _measure(effects: _Effects, taken: Sequence[_Change]) -> float:
    """The norm of what some changes leave of the error."""
    return float(np.linalg.norm(effects.find_rest(taken)))


def _list_ends(flight: Flight, envelope: Envelope) -> Iterator[tuple[_Change, Array]]:
    """What one device has after the round by each change.

    State that is read by one op and written by another loses updates, and what it had
    before weighs more then; it has none twice.
    """
    kinds = [(-1, flight.lost), (1, flight.again)]
    for sign, traces in kinds[:1] if envelope.variable in flight.torn_paths else kinds:
        for place, trace in traces.items():
            yield _Change(place, sign), find_end(trace, envelope.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Explained:
    """The changes that explain an error, and the share of its norm that they leave.

    See `Count` for the rest.
    """

    taken: Sequence[_Change]
    left: float
    saved: float = 0.0


def _is_better(some: _Explained, other: _Explained) -> bool:
    """Whether an explanation leaves much less, or no more by fewer changes."""
    if some.left <= other.left and len(some.taken) < len(other.taken):
        return True
    return _NEEDED * some.left < other.left


def _explain(effects: _Effects, reach: Array, *, in_part: bool) -> _Explained:
    off = effects.find_rest(())
    whole = float(np.linalg.norm(off))
    if not 0 < whole < np.inf:
        return _Explained(taken=(), left=1.0)
    taken = _drop_needless(effects, _choose(effects), reach)
    if not taken:
        return _Explained(taken=(), left=1.0)
    return _Explained(
        taken=taken,
        left=_measure(effects, taken) / whole,
        saved=_count_margin(effects, taken, reach, in_part=in_part),
    )


def _count_margin(
    effects: _Effects, taken: Sequence[_Change], reach: Array, *, in_part: bool
) -> float:
    """By how much whole steps tell an error better than the next best account of it.

    What weighs a gradient wrongly errs along what the steps do, and by any share: only
    what is nearer to a whole than to the next half is a count.
    """
    saved = _count_saved(effects, taken, reach)
    if in_part:
        return saved
    halves = [_count_saved(effects, taken, reach, share) for share in (0.5, 1.5)]
    return saved - max(0.0, *halves)


def _count_saved(
    effects: _Effects, taken: Sequence[_Change], reach: Array, share: float = 1.0
) -> float:
    off, left = effects.find_rest(()), effects.find_rest(taken, share)
    scale, choices = effects.observed, len(effects.parts)
    return count_saved(off, left, reach, scale, len(taken), choices)


def _choose(effects: _Effects) -> list[_Change]:
    """The changes that take away most of the error, one after the other."""
    taken: list[_Change] = []
    changes = list(effects.parts)
    while changes:
        rests = [_measure(effects, [*taken, change]) for change in changes]
        if not min(rests) < _measure(effects, taken):
            break
        best = changes[int(np.argmin(rests))]
        taken.append(best)
        # What was lost is lost once, and is not applied again besides.
        may_repeat = best.sign > 0 and taken.count(best) < _MOST_TIMES
        changes = [
            change
            for change in changes
            if change.place != best.place
            or (may_repeat if change == best else change.sign == best.sign < 0)
        ]
    return taken


def _drop_needless(
    effects: _Effects, taken: list[_Change], reach: Array
) -> list[_Change]:
    """The changes that tell more than has to be told of them.

    Where the order matters the best explanation leaves something as well, and a step
    that has no part in it may chance to point there. One change always stays.
    """
    while len(taken) > 1:
        others = [taken[:n] + taken[n + 1 :] for n in range(len(taken))]
        saved = [_count_saved(effects, rest, reach) for rest in others]
        if max(saved) < _count_saved(effects, taken, reach):
            break
        taken = others[int(np.argmax(saved))]
    return taken
