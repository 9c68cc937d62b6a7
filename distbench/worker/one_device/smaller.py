"""Whether smaller gradients than those of a run show a size that these do not."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import numpy as np

from distbench.evidence import Tier
from distbench.trace import Phase, Trace
from distbench.trace.numbers import densify, is_finite
from distbench.worker.one_device.feeder import Feeder
from distbench.worker.one_device.held_against import (
    are_multiples,
    change_gradients,
    pair_handed,
    take_whole,
)
from distbench.worker.process.failures import SubjectError
from distbench.worker.state.values import are_near, multiply

_PARTS = (2.0**-5, 2.0**-10, 2.0**-15)
"""As what part of themselves gradients may be small enough for a clip in use."""
_HANDED: Phase = "reduced_gradient"


def find_unlimited(feeder: Feeder, tier: Tier, recorded: Trace) -> float:
    """As what part of those of a run gradients show their size, which these do not.

    A clip that limits all of a run makes the same of them and of N times as large
    ones, so a sum that is divided by another number before it leaves no trace. Of
    gradients that are small enough it makes the N-th of what it makes of N times as
    large ones. What has no size by nature, as signs or steps of a given length, never
    does.

    Args:
        feeder: Runs the reference's steps.
        tier: Which one.
        recorded: What one device recorded in it.

    Returns:
        The largest such part that was tried; 0 where there is none, where the size of
        some gradient is seen already, or where there is no sum to be wrong.
    """
    replicas = feeder.reference.replicas
    if replicas == 1 or not feeder.takes(tier) or not _changes_all(recorded):
        return 0.0
    own = take_whole(recorded, "local_gradient")

    def make_of(factor: float) -> Trace:
        change = partial(multiply, factor=factor)
        return feeder.feed(tier, change_gradients(own, change), "local_gradient")

    # A step that cannot take them tells nothing.
    with suppress(SubjectError):
        handed = take_whole(recorded, _HANDED)
        if not are_multiples(handed, make_of(replicas), 1.0):
            return 0.0
        for part in _PARTS:
            small = make_of(part)
            if not _are_there(small):
                break  # what is left of them is 0, whatever their size
            if are_multiples(small, make_of(part * replicas), replicas):
                return part
    return 0.0


def _changes_all(trace: Trace) -> bool:
    """Whether each step changes every gradient that is not 0, and there is some."""
    seen: set[int] = set()
    for key, value, handed in pair_handed(trace):
        if handed is None or not is_finite(handed):
            return False
        if np.any(densify(value)):
            if are_near(value, handed, trace.dtypes.get(key.variable)):
                return False
            seen.add(key.step)
    return seen == set(range(trace.steps))


def _are_there(trace: Trace) -> bool:
    """Whether each step reduces something."""
    there = {
        key.step for key, value in trace.select(phase=_HANDED) if np.any(densify(value))
    }
    return there == set(range(trace.steps))
