"""Orders in which steps in flight may have read and written their variables."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Literal

import numpy as np

Event = tuple[Literal["read", "update", "rest"], int]
"""What happens, and to the step of which place in the round.

Where there is a `rest`, the update is that of some variables, and the rest of them
follows then.
"""

EXTREMES = 3
"""Orders of `list_extremes` for each step."""


def list_in_turn(places: Sequence[int]) -> list[Event]:
    """One step after the other."""
    return [(kind, place) for place in places for kind in ("read", "update")]


def list_together(places: Sequence[int]) -> list[Event]:
    """All read, then each updates."""
    return [("read", place) for place in places] + [
        ("update", place) for place in places
    ]


def list_as_seen(begun: Sequence[int], ended: Sequence[int]) -> Iterator[list[Event]]:
    """Orders in which each step reads as it begins, and updates as it ends.

    The first has all of them do so; then one step after the other reads later, when
    one, two, ... more have ended.

    Args:
        begun: Of each step, how many had ended when it began.
        ended: Its number among those that ended, from 0 over all rounds.
    """
    updates = [(when, 1, place) for place, when in enumerate(ended)]
    late = [(p, when) for p in range(len(begun)) for when in range(begun[p], ended[p])]
    for changed, more in [(-1, 0), *((place, when + 1) for place, when in late)]:
        reads = [(more if p == changed else b, 0, p) for p, b in enumerate(begun)]
        yield [
            ("update" if is_update else "read", place)
            for _, is_update, place in sorted(reads + updates)
        ]


def draw_order(
    begun: Sequence[int],
    ended: Sequence[int],
    rng: np.random.Generator,
    put_off: Collection[Event] = (),
) -> Iterator[Event]:
    """An order that does not contradict what each step saw of the others.

    A step reads after all that had ended when it began, and updates after it has read.

    Args:
        begun: Of each step, how many had ended when it began.
        ended: Its number among those that ended, from 0 over all rounds.
        rng: Chooses among what may come next, all with the same chance.
        put_off: What comes only when there is nothing else that may come.
    """
    count = len(begun)
    read: set[int] = set()
    done: set[int] = set()
    while len(done) < count:
        free: list[Event] = [
            ("read", place)
            for place in range(count)
            if place not in read
            and all(ended[i] >= begun[place] or i in done for i in range(count))
        ]
        free += [("update", place) for place in sorted(read - done)]
        free = [event for event in free if event not in put_off] or free
        kind, place = free[int(rng.integers(len(free)))]
        (read if kind == "read" else done).add(place)
        yield kind, place


def split_updates(
    events: Sequence[Event],
    begun: Sequence[int],
    ended: Sequence[int],
    rng: np.random.Generator,
) -> list[Event]:
    """Let steps of an order update some of their variables later than the others.

    Args:
        events: An order of whole updates.
        begun: Of each step, how many had ended when it began.
        ended: Its number among those that ended.
        rng: Chooses when the rest follows.
    """
    late: list[tuple[int, Event]] = []
    for number, (kind, place) in enumerate(events):
        if kind != "update":
            continue
        # Who began after the step had ended saw all of it.
        after = (
            later
            for later in range(number, len(events))
            if events[later][0] == "read" and begun[events[later][1]] > ended[place]
        )
        end = next(after, len(events))
        found = int(rng.integers(number + 1, end + 1))
        if found > number + 1:
            late.append((found, ("rest", place)))
    merged = list(events)
    for found, event in sorted(late, reverse=True):
        merged.insert(found, event)
    return merged


def list_extremes(
    begun: Sequence[int], ended: Sequence[int], places: Sequence[int]
) -> Iterator[frozenset[Event]]:
    """What has to be put off so that each step in turn updates last, and first.

    Last is whoever reads early and updates late, and whoever is late with both.

    Among orders that are drawn these hardly are: a worker that stands still while the
    others run many steps does what chance would not.

    Args:
        begun: Of each step, how many had ended when it began.
        ended: Its number among those that ended.
        places: The steps that are asked for.
    """
    for place in places:
        yield frozenset({("update", place)})
        yield frozenset(list_in_turn([place]))
        needed = {i for i in range(len(ended)) if ended[i] < begun[place]} | {place}
        yield frozenset(
            event for event in list_in_turn(range(len(ended))) if event[1] not in needed
        )
