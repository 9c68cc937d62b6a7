"""Whether a traced step sums what its tapes gave, as they gave it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import chain
from typing import Any

import numpy as np
import tensorflow as tf

from distbench.dyadic import is_power_of_two
from distbench.worker.state.graphs import list_called
from distbench.worker.state.moving import MOVING
from distbench.worker.taps.backwards import (
    Backwards,
    Place,
    find_place,
    is_communicated,
    is_eager,
)
from distbench.worker.taps.seen import Seen

_PASSING = ("Identity", "IdentityN")
_DIVIDING = ("RealDiv", "Div", "DivNoNan")
_EXACT = MOVING | {
    "Abs",
    "AddN",  # how a strategy adds up what devices of one process have
    "ClipByValue",
    "Maximum",
    "Minimum",
    "Neg",
    "OnesLike",
    "Relu",
    "Sign",
    "ZerosLike",
}
"""Ops that round nothing."""


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


def count_roundings(seen: Seen, sums: Mapping[str, Iterable[Any]]) -> dict[str, int]:
    """How often what replicas hand over is rounded on its way, besides additions.

    A program that multiplies what it sums, and divides the sum again, leaves it as it
    is but for that.

    Args:
        seen: What the replicas of a cluster were seen to do.
        sums: By variable, what one of them was given.

    Returns:
        By variable, if it is at all, as far as the graph tells.
    """
    handed = chain(*seen.handed.values())
    roundings = _Roundings(set(map(find_place, handed)))
    found = {path: max(map(roundings.count, own)) for path, own in sums.items()}
    return {path: count for path, count in found.items() if count}


class _Roundings:
    """Counts the roundings on the longest way to a tensor.

    Args:
        given: What it may come of.
        bodies: The same for what functions are given, by identity of their graphs.
    """

    def __init__(
        self, given: Collection[Place], bodies: dict[int, _Roundings] | None = None
    ) -> None:
        self._given = given
        self._bodies = {} if bodies is None else bodies
        self._backwards = Backwards()
        self._counts: dict[Place, int | None] = {}

    def count(self, tensor: Any) -> int:
        """The count; 0 for what comes of nothing of that."""
        # Not by recursion: such a one may be made of a whole model.
        waiting = [(tensor, self._list_sources(tensor))]
        while waiting:
            made, sources = waiting[-1]
            new = [s for s in sources if find_place(s) not in self._counts]
            if new:
                waiting.append((new[0], self._list_sources(new[0])))
                continue
            waiting.pop()
            known = [self._counts[find_place(source)] for source in sources]
            counts = [count for count in known if count is not None]
            if counts:
                self._counts[find_place(made)] = max(counts) + self._count_own(made)
        return self._counts[find_place(tensor)] or 0

    def _list_sources(self, tensor: Any) -> list[Any]:
        place = find_place(tensor)
        self._counts[place] = 0 if place in self._given else None
        if place in self._given or is_eager(tensor):
            return []
        return list(filter(_is_number, self._backwards.list_sources(tensor)))

    def _count_own(self, tensor: Any) -> int:
        """How often its op rounds, or the longest way through what it calls does."""
        bodies = list(list_called(tensor.op))
        if not bodies:
            return _count_of_op(tensor)
        return max(self._count_inside(body, tensor.value_index) for body in bodies)

    def _count_inside(self, body: Any, place: int) -> int:
        """The roundings on the way through a function; of a loop, in one pass."""
        inside = self._bodies.get(id(body))
        if inside is None:
            given = set(map(find_place, body.inputs))
            inside = self._bodies[id(body)] = _Roundings(given, self._bodies)
        made = filter(_is_number, body.outputs[place:][:1])
        return max(map(inside.count, made), default=0)


def _count_of_op(tensor: Any) -> int:
    """How often an op rounds: a factor may be rounded, and the product with it is."""
    op = tensor.op
    if op.type in _EXACT or is_communicated(tensor):
        return 0
    if op.type not in ("Mul", *_DIVIDING):
        return 1
    factors = op.inputs[1:] if op.type in _DIVIDING else op.inputs
    known = map(tf.get_static_value, factors)
    powers = (n for n in known if n is not None and np.ndim(n) == 0)
    return 0 if any(map(is_power_of_two, map(abs, powers))) else 2


def _is_number(tensor: Any) -> bool:
    """Whether it may be rounded, unlike a place, a size or a choice."""
    return bool(tensor.dtype.is_floating or tensor.dtype.is_complex)
