"""Orders in which steps in flight may have read and written their variables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    begun: Sequence[int], ended: Sequence[int], rng: np.random.Generator
) -> Iterator[Event]:
    """An order that does not contradict what each step saw of the others.

    A step reads after all that had ended when it began, and updates after it has read.

    Args:
        begun: Of each step, how many had ended when it began.
        ended: Its number among those that ended, from 0 over all rounds.
        rng: Chooses among what may come next, all with the same chance.
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
        kind, place = free[int(rng.integers(len(free)))]
        (read if kind == "read" else done).add(place)
        yield kind, place
