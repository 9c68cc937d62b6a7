"""Orders in which steps in flight may have read and written their variables."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Literal

import numpy as np

Event = tuple[Literal["read", "update"], int]
"""What happens, and to the step of which place in the round."""


def list_in_turn(places: Sequence[int]) -> list[Event]:
    """One step after the other."""
    return [(kind, place) for place in places for kind in ("read", "update")]


def list_together(places: Sequence[int]) -> list[Event]:
    """All read, then each updates."""
    return [("read", place) for place in places] + [
        ("update", place) for place in places
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


def list_extremes(
    begun: Sequence[int], ended: Sequence[int], places: Sequence[int]
) -> Iterator[frozenset[Event]]:
    """What has to be put off so that each step in turn updates last, and first.

    Among orders that are drawn these hardly are: a worker that stands still while the
    others run many steps does what chance would not.

    Args:
        begun: Of each step, how many had ended when it began.
        ended: Its number among those that ended.
        places: The steps that are asked for.
    """
    for place in places:
        yield frozenset({("update", place)})
        needed = {i for i in range(len(ended)) if ended[i] < begun[place]} | {place}
        yield frozenset(
            event for event in list_in_turn(range(len(ended))) if event[1] not in needed
        )
