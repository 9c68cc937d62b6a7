"""The smallest error that is seen, by bisection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

_HALVINGS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """Between what is seen and what is not.

    Attributes:
        seen: The smallest error that was tried and seen.
        unseen: The largest below it that was not; 0 where all were seen.
    """

    seen: float
    unseen: float


def find_threshold(
    sees: Callable[[float], bool],
    *,
    start: float = 2.0**-21,
    floor: float = 2.0**-40,
    ceiling: float = 2.0**10,
) -> Threshold | None:
    """The smallest visible error: by powers of two, then finer.

    Args:
        sees: Whether an error of this size is seen. Larger ones should be seen too;
            where rounding makes that untrue, the answer is one of the places where it
            changes.
        start: Where to begin.
        floor: Where to stop asking for less.
        ceiling: Where to stop asking for more.

    Returns:
        None where not even the largest is seen.
    """
    size = start
    if sees(size):
        while size > floor and sees(size / 2):
            size /= 2
        if size <= floor:
            return Threshold(seen=size, unseen=0.0)
        unseen, seen = size / 2, size
    else:
        while not sees(size * 2):
            size *= 2
            if size >= ceiling:
                return None
        unseen, seen = size, size * 2
    for _ in range(_HALVINGS):
        middle = float(np.sqrt(unseen * seen))
        if sees(middle):
            seen = middle
        else:
            unseen = middle
    return Threshold(seen=seen, unseen=unseen)
