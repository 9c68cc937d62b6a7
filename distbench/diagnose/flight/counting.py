"""How often each step in flight was applied to a variable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from distbench.compare.envelope import Envelope, stack_orders
from distbench.diagnose.flight.effects import (
    Change,
    Effects,
    Product,
    Sum,
    join_parts,
    list_parts,
)
from distbench.diagnose.flight.plausible import count_saved
from distbench.flight import Flight
from distbench.trace.numbers import Array

_MOST_TIMES = 4
"""Applications of a step beyond its own that are told apart."""
_NEEDED = 3
"""So many times as much of the error has the wrong one of sums and products to leave.
A choice: of 144 errors one left 1.5 times as much as the other in the median, and more
than this in 42, without a gap between. What each saves is no measure, as each says in
its own way what the orders leave."""


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
    `Sum` and `Product`. Where each step has elements of its own the count is exact.
    """
    orders = stack_orders(flight, envelope.key)
    parts = list_parts(flight, envelope)
    in_part = envelope.variable in flight.torn_paths
    reach = orders.max(axis=0) - orders.min(axis=0)
    added = _explain(Sum(envelope.observed, orders, parts), reach, in_part=in_part)
    decayed = _explain(
        Product(envelope.observed, orders, parts), reach, in_part=in_part
    )
    best = decayed if _is_better(decayed, added) else added
    steps: dict[int, int] = {}
    for place, sign, _ in join_parts(best.taken, parts):
        steps[place] = steps.get(place, 0) + sign
    first = envelope.round * flight.in_flight
    return Count(
        lost=tuple(sorted(first + p for p, n in steps.items() if n < 0)),
        extra={first + p: n for p, n in sorted(steps.items()) if n > 0},
        confidence=max(0.0, 1 - best.left),
        saved=best.saved,
    )


def _measure(effects: Effects, taken: Sequence[Change]) -> float:
    """The norm of what some changes leave of the error."""
    return float(np.linalg.norm(effects.find_rest(taken)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Explained:
    """The changes that explain an error, and the share of its norm that they leave.

    See `Count` for the rest.
    """

    taken: Sequence[Change]
    left: float
    saved: float = 0.0


def _is_better(some: _Explained, other: _Explained) -> bool:
    """Whether an explanation leaves much less, or no more by fewer changes."""
    if some.left <= other.left and len(some.taken) < len(other.taken):
        return True
    return _NEEDED * some.left < other.left


def _explain(effects: Effects, reach: Array, *, in_part: bool) -> _Explained:
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
    effects: Effects, taken: Sequence[Change], reach: Array, *, in_part: bool
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
    effects: Effects, taken: Sequence[Change], reach: Array, share: float = 1.0
) -> float:
    off, left = effects.find_rest(()), effects.find_rest(taken, share)
    scale, choices = effects.observed, len(effects.parts)
    return count_saved(off, left, reach, scale, len(taken), choices)


def _choose(effects: Effects) -> list[Change]:
    """The changes that take away most of the error, one after the other."""
    taken: list[Change] = []
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


def _drop_needless(effects: Effects, taken: list[Change], reach: Array) -> list[Change]:
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
