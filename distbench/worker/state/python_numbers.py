"""Numbers of Python's that optimizers keep, which move while a step is traced."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from distbench.worker.state.reachable import get_attributes

Number = int | float
Move = Callable[[Number, int], Number]
"""What a number comes to that is moved so many times more (or less, below 0)."""
Moved = tuple[Number, Number]
"""A number before and after something was assigned to it."""

_NEAR = 1e-9
"""How far two factors of floats may lie apart that are one and the same."""


def read_numbers(optimizers: Iterable[Any]) -> dict[str, Number]:
    """The numbers that are attributes of optimizers, by `position.name`."""
    return {
        f"{position}.{name}": value
        for position, optimizer in enumerate(optimizers)
        for name, value in get_attributes(optimizer).items()
        if type(value) in (int, float)
    }


def write_number(optimizers: Sequence[Any], path: str, value: Number) -> None:
    """Set a number; see `read_numbers`."""
    optimizer, name = _find(optimizers, path)
    setattr(optimizer, name, value)


@contextmanager
def move_further(
    optimizers: Sequence[Any], path: str, change: Callable[[Number, Number], Number]
) -> Iterator[None]:
    """Inside, what is assigned to a number is changed on its way.

    Args:
        optimizers: Of the program.
        path: Of the number; see `read_numbers`.
        change: Makes what is assigned, of the number as it was and of what was meant.
    """
    optimizer, name = _find(optimizers, path)
    kind = type(optimizer)
    write: Any = kind.__setattr__

    def assign(self: Any, attribute: str, value: Any) -> None:
        if attribute == name and self is optimizer and type(value) in (int, float):
            value = change(get_attributes(self)[name], value)
        write(self, attribute, value)

    # The class of this object alone: it is left as it is, and other objects are.
    names: Mapping[str, Any] = {
        "__setattr__": assign,
        "__slots__": (),
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
    }
    moving = type(kind.__name__, (kind,), dict(names))
    object.__setattr__(optimizer, "__class__", moving)
    try:
        yield
    finally:
        object.__setattr__(optimizer, "__class__", kind)


def find_move(moves: Sequence[Moved]) -> Move | None:
    """How a number is moved each time: by a summand, or else by a factor.

    None where it is moved by neither, or not at all.
    """
    summands = [after - before for before, after in moves]
    if summands and _are_one(summands) and summands[0]:
        return lambda value, times: value + times * summands[0]
    factors = [after / before for before, after in moves if before]
    if (
        len(factors) == len(moves) > 1
        and _are_one(factors)
        and factors[0] not in (0, 1)
    ):
        return lambda value, times: _multiply(value, factors[0], times)
    return None


def _multiply(value: Number, factor: Number, times: int) -> Number:
    """A number times a power, infinite where Python's own would raise."""
    with np.errstate(all="ignore"):
        return float(np.float64(value) * np.float64(factor) ** times)


def _are_one(found: Sequence[Number]) -> bool:
    first = found[0]
    return all(abs(other - first) <= _NEAR * abs(first) for other in found)


def _find(optimizers: Sequence[Any], path: str) -> tuple[Any, str]:
    position, _, name = path.partition(".")
    return optimizers[int(position)], name
