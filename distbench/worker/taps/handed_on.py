"""Whether a traced step sums what its tapes gave, as they gave it."""

from __future__ import annotations

from itertools import chain
from typing import Any

from distbench.worker.taps.backwards import Backwards, find_place, is_eager
from distbench.worker.taps.seen import Seen

_PASSING = ("Identity", "IdentityN")


def hands_on_as_given(seen: Seen) -> bool:
    """Whether every gradient that was summed is one of a tape, whatever its numbers.

    Then nothing limits it on its way, however large it is. False where the graph does
    not tell: of what is computed op by op, or came into an inner function, and where no
    sum was seen.

    Args:
        seen: What one device was seen to do: a sum over replicas leaves it as it is.
    """
    given = set(map(find_place, seen.list_results()))
    handed = list(chain(*seen.reduced.values()))
    return bool(handed) and all(_is_passed(tensor, given) for tensor in handed)


def _is_passed(tensor: Any, given: set[Any]) -> bool:
    backwards = Backwards()
    while not is_eager(tensor):
        if find_place(tensor) in given:
            return True
        if tensor.op.type not in _PASSING:
            return False
        [tensor] = backwards.list_sources(tensor)
    return False
