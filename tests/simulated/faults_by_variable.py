"""Faults in how some variables are reduced, each in a way of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gradient_values import add_up, add_values, clip_norm, scale
from training_simulator import Fault

from distbench.trace import Value

Combine = Callable[[Sequence[Value], int], Any]


def go_on_alone(values: Sequence[Value], replica: int) -> Any:
    return values[replica]


def double(values: Sequence[Value], replica: int) -> Any:
    return scale(add_values(values), len(values))


def lose_last(values: Sequence[Value], replica: int) -> Any:
    return add_values(values[:-1])


def clip(values: Sequence[Value], replica: int) -> Any:
    return add_values([clip_norm(value, 0.1) for value in values])


def times(factor: float) -> Combine:
    return lambda values, _: scale(add_values(values), factor)


def make_fault(ways: dict[str, Combine], **more: Any) -> Fault:
    """Some variables are reduced in ways of their own."""

    def reduce(locals_: Sequence[Any], step: int) -> list[Any]:
        return [
            {
                **add_up(locals_),
                **{p: way([g[p] for g in locals_], r) for p, way in ways.items()},
            }
            for r in range(len(locals_))
        ]

    return Fault(reduce=reduce, **more)
