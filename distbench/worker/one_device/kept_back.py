"""What replicas keep back of their own gradients, and send in a later sum.

One device has kept back what the global batch gave it. That is what all replicas have
together only where its gradient is the sum of the shards', which under batch statistics
it is not.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import numpy.typing as npt

from distbench.evidence import Tier
from distbench.trace import Trace, TraceKey
from distbench.trace.numbers import densify
from distbench.worker.one_device.feeder import Feeder, Start
from distbench.worker.state.values import are_near
from distbench.worker.taps.collect import State

_Number = npt.NDArray[np.generic]
_NEARER = 64
"""As many times nearer is what follows from the right start than from another one."""


def join_kept_back(
    feeder: Feeder,
    tier: Tier,
    observed: Trace,
    due: Trace,
    feed: Callable[..., Trace],
) -> Trace | None:
    """What a sum leads to where all that the replicas keep back is added up before.

    None where nothing is kept, where the replicas keep something else of a step than
    one device does, or where the cluster is no nearer to what follows.

    Args:
        feeder: Runs the reference's steps.
        tier: Which one.
        observed: What the cluster recorded.
        due: What the sum leads to from the reference's own state.
        feed: Puts the sum into the steps, from what `start` says.
    """
    own = {
        v.path
        for v in observed.variables
        if not v.synchronised and v.role == "variable" and "float" in v.dtype
    }
    if not own:
        return None
    joined = feed(start=_start_from(observed, own))
    # What follows from the examples besides, as a moving mean, is not kept back.
    kept = _find_added(feeder, tier, observed, joined, own, steps=1)
    if not kept:
        return None
    if kept != own:
        joined = feed(start=_start_from(observed, kept))
    steps = len(feeder.reference.starts.list_whole(tier))
    if kept != _find_added(feeder, tier, observed, joined, kept, steps):
        return None
    apart = _measure_distance(observed, due)
    return joined if _measure_distance(observed, joined) < apart / _NEARER else None


def _start_from(observed: Trace, kept: Collection[str]) -> Start:
    def start(step: int, before: State) -> State:
        return {
            (path, number): _add_up(observed, step - 1, path, value)
            if path in kept
            else value
            for (path, number), value in before.items()
        }

    return start


def _find_added(
    feeder: Feeder,
    tier: Tier,
    observed: Trace,
    joined: Trace,
    kept: Collection[str],
    steps: int,
) -> set[str]:
    """Which of some state the replicas have as much of together, after some steps."""
    found = set(kept)
    start = _start_from(observed, kept)
    for step, before in enumerate(feeder.reference.starts.list_whole(tier)[:steps]):
        begun = start(step, before)
        for path in kept:
            after = joined.select(step=step, phase="variable", variable=path)
            left = [value for _, value in after]
            if not left:
                # A step without gradients was not fed: it shows nothing.
                found.discard(path)
                continue
            # The trace says what the same would have added to what one device had.
            after = np.asarray(left[0]) - before[path, 0] + begun[path, 0]
            if not are_near(after, _add_up(observed, step, path, after), None):
                found.discard(path)
    return found


def _add_up(observed: Trace, step: int, path: str, value: Any) -> _Number:
    """What all replicas have of it after a step, or the value of one device."""
    key = TraceKey(step=step, phase="variable", variable=path)
    found = [np.asarray(v) for v in observed.get_replicas(key)]
    if not found or found[0].shape != value.shape:
        return np.asarray(value)
    return np.asarray(np.sum(found, axis=0, dtype=np.float64), value.dtype)


def _measure_distance(observed: Trace, expected: Trace) -> float:
    """How far the replicas' variables lie from what follows, by their own size."""
    own = {v.path for v in observed.variables if not v.synchronised}
    found = 0.0
    for key, value in expected.values.items():
        seen = observed.get(key)
        if key.phase != "variable" or key.variable in own or seen is None:
            continue
        due = densify(value)
        size = float(np.max(np.abs(due), initial=0.0)) or 1.0
        error = float(np.max(np.abs(densify(seen) - due), initial=0.0))
        found = max(found, error / size)
    return found
