"""What one device makes of a counter of steps that the replicas have a part in."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from distbench.evidence import Tier
from distbench.trace import UPDATED, Trace
from distbench.worker.one_device.feeder import Feeder
from distbench.worker.one_device.held_against import differ
from distbench.worker.process.failures import SubjectError
from distbench.worker.taps.collect import State

_Count = Callable[[Any, int], Any]
_COUNTS: Mapping[str, _Count] = {
    "N (t + 1) - 1": lambda t, n: n * (t + 1) - 1,
    "N t": lambda t, n: n * t,
    "t + N - 1": lambda t, n: t + n - 1,
    "t - (N - 1)": lambda t, n: t - (n - 1),
    "t // N": lambda t, n: t // n,
}
"""Where a counter may be taken to be, by what a message calls it. Whatever is another
rule from some step on is another one by the first of them, too."""


def count_otherwise(
    feeder: Feeder, tier: Tier, observed: Trace, followed: Trace
) -> tuple[Trace, ...]:
    """Feed the observed reduced gradients where the counter of steps is elsewhere.

    A schedule, a correction of a first step or a start that comes late are told by it,
    whatever else a rule makes of them. What the step adds to the counter is added to
    it as it was. A note says where it is (`count`). Empty where no rule looks at it.

    Args:
        feeder: Runs the reference's steps.
        tier: Which one.
        observed: What the cluster recorded.
        followed: What follows where the counter is right.
    """
    infos = feeder.reference.session.variables
    counters = {v.path for v in infos if v.role == "iterations"}
    if observed.replicas < 2 or not counters:
        return ()
    found: list[Trace] = []
    for name, count in _COUNTS.items():
        move = partial(_move, counters, count, observed.replicas)
        # A schedule may know no steps before the first one.
        with suppress(SubjectError):
            trace = feeder.feed(
                tier, observed, "reduced_gradient", move=move, count=name
            )
            if not found and not differ(trace, followed, UPDATED):
                return ()
            found.append(trace)
    return tuple(found)


def _move(
    counters: Collection[str], count: _Count, replicas: int, _: int, before: State
) -> State:
    return {
        key: count(array, replicas).astype(array.dtype) if key[0] in counters else array
        for key, array in before.items()
    }
