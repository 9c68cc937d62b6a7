"""What leaving steps out, or taking them again, makes of state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from distbench.compare.envelope import Envelope, find_end
from distbench.flight import Flight
from distbench.trace.numbers import Array

Places = npt.NDArray[np.bool_]
"""Which elements are meant."""


class Change(NamedTuple):
    """A step that is left out, or comes once more.

    Attributes:
        place: Of the step.
        sign: -1 where it is left out, or 1 where it comes once more.
        by: Of the step that overwrote it, where that wrote a part of it alone.
    """

    place: int
    sign: int
    by: int | None = None


class Part(NamedTuple):
    """What one device has by a change of a whole step, and where it is changed."""

    end: Array
    where: Places


Parts = Mapping[Change, Part]


class Effects(Protocol):
    """How what is changed comes together."""

    parts: Parts
    observed: Array

    def find_rest(self, taken: Sequence[Change], share: float = 1.0) -> Array:
        """By how much each element is off with some changes, or a share of each."""


class Sum:
    """State to which each step adds: what several steps change adds up.

    An element may be what any order makes of it, and what the changes add to that.
    """

    def __init__(self, observed: Array, orders: Array, parts: Parts) -> None:
        self.observed, self.parts = observed, parts
        self._low, self._high = orders.min(axis=0), orders.max(axis=0)
        self._base = orders[0]

    def find_rest(self, taken: Sequence[Change], share: float = 1.0) -> Array:
        """What is beyond all orders without them."""
        at = self.observed
        for place, sign, where in join_parts(taken, self.parts):
            end = self.parts[Change(place, sign)].end
            at = at - share * np.where(where, end - self._base, 0.0)
        return np.asarray(at - np.clip(at, self._low, self._high))


class Product:
    """State that each step scales, as a slot that decays: what they change multiplies.

    A step that is left out takes its own part away, and what was there before it has
    not decayed by it: one device says by which factor, element by element. An element
    may be what any order makes of it, or as many times smaller or larger again.
    """

    def __init__(self, observed: Array, orders: Array, parts: Parts) -> None:
        self.observed, self.parts = observed, parts
        low, high = orders.min(axis=0), orders.max(axis=0)
        wide = np.where(low * high > 0, low / high, 1.0)
        self._reach = np.stack([low * wide, low / wide, high * wide, high / wide])
        self._base = orders[0]

    def find_rest(self, taken: Sequence[Change], share: float = 1.0) -> Array:
        """What is beyond all that the orders leave, scaled by them."""
        reach, base = self._reach, self._base
        for place, sign, where in join_parts(taken, self.parts):
            end = self.parts[Change(place, sign)].end
            reach = reach * np.where(where & (base != 0), end / base, 1.0) ** share
        nearest = np.clip(self.observed, reach.min(axis=0), reach.max(axis=0))
        return np.asarray(self.observed - nearest)


def list_parts(flight: Flight, envelope: Envelope) -> Parts:
    """All changes that may be taken, of whole steps and of parts of them.

    A step that writes some rows of what it has read overwrites others there alone: two
    steps that are under way together may lose the rows that both have.
    """
    ends = dict(_list_ends(flight, envelope))
    base = find_end(flight.orders[0], envelope.key)
    moves = {
        change: np.not_equal(end, base) & ~(np.isnan(end) & np.isnan(base))
        for change, end in ends.items()
    }
    parts = {
        change: Part(end, np.ones(np.shape(base), bool)) for change, end in ends.items()
    }
    if envelope.variable not in flight.torn_paths:
        return parts
    for lost, end in ends.items():
        for other in ends:
            both = moves[lost] & moves[other]
            is_part = both.any() and not np.array_equal(both, moves[lost])
            if other != lost and is_part and _overlap(flight, envelope, lost, other):
                parts[lost._replace(by=other.place)] = Part(end, both)
    return parts


def _overlap(flight: Flight, envelope: Envelope, one: Change, two: Change) -> bool:
    """Whether two steps of a round were under way at the same time."""
    first = envelope.round * flight.in_flight
    one_at, two_at = (flight.times[first + change.place] for change in (one, two))
    return one_at[0] <= two_at[1] and two_at[0] <= one_at[1]


def _list_ends(flight: Flight, envelope: Envelope) -> Iterator[tuple[Change, Array]]:
    """What one device has after the round by each change.

    State that is read by one op and written by another loses updates, and what it had
    before weighs more then; it has none twice.
    """
    kinds = [(-1, flight.lost), (1, flight.again)]
    for sign, traces in kinds[:1] if envelope.variable in flight.torn_paths else kinds:
        for place, trace in traces.items():
            yield Change(place, sign), find_end(trace, envelope.key)


def join_parts(
    taken: Sequence[Change], parts: Parts
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
