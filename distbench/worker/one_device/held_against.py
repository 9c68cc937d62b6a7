"""Which values of one run are those of another, and how far the others are apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from distbench.trace import (
    UPDATED,
    WHOLE,
    Phase,
    Selection,
    SparseRows,
    Trace,
    TraceKey,
    Value,
    Values,
    change_numbers,
)
from distbench.worker.state.values import are_near, have_same_bits


def take_whole(reference: Trace, phase: Phase, step: int | None = None) -> Trace:
    """Gradients of the whole batch, of one step or of all, as those of one replica."""
    chosen = Selection(step=step, phase=phase, replica=WHOLE)
    values = Values(reference.values).keep(chosen.has).rename(lambda key: key.at(0))
    return replace(reference, replicas=1, values=values)


def take_replica(observed: Trace, phase: Phase) -> Trace:
    """Gradients of the first replica, as of a run that has no other."""
    chosen = Selection(phase=phase, replica=0)
    values = Values(observed.values).keep(chosen.has)
    return replace(observed, replicas=1, values=values)


def change_gradients(
    given: Trace,
    change: Callable[[Any], Any],
    phase: Phase | None = None,
    replica: int | None = None,
) -> Trace:
    """Gradients with other numbers, of one phase or of one replica if it is named."""
    found = given.select(phase=phase, replica=replica)
    values = {key: change_numbers(value, change) for key, value in found}
    return replace(given, values=values)


def pair_handed(trace: Trace) -> Iterator[tuple[TraceKey, Value, Value | None]]:
    """What the whole batch's tapes gave, and what one device reduced of it."""
    handed = take_whole(trace, "reduced_gradient").values
    for key, value in take_whole(trace, "local_gradient").values.items():
        yield key, value, handed.get(replace(key, phase="reduced_gradient"))


def are_multiples(trace: Trace, other: Trace, times: float) -> bool:
    """Whether another run reduces so many times what one does, but for roundings.

    Args:
        trace: What one device reduces, or a replica; see `take_whole`.
        other: The same of the other run.
        times: As many times.
    """
    return all(
        (found := other.get(key)) is not None
        and are_near(value, found, trace.dtypes.get(key.variable), part=times)
        for key, value in trace.select(phase="reduced_gradient")
    )


def hands_on(reference: Trace) -> bool:
    """Whether one device reduces the gradients of the whole batch as they are."""
    return all(
        have_same_bits(handed, value) for _, value, handed in pair_handed(reference)
    )


def measure_distances(
    left: Trace, right: Trace, own_replica: int | None = None
) -> dict[str, float]:
    """By variable, the most that any element of its state is apart.

    Args:
        left: State after steps.
        right: State of another run after these steps.
        own_replica: The replica of the right run, if not the left one's.
    """
    distances: dict[str, float] = {}
    state = Values(left.values).keep(lambda key: key.phase in UPDATED)
    for key, value in state.items():
        other = right.get(key if own_replica is None else key.at(own_replica))
        if other is None:
            continue
        near, far = (np.asarray(v, np.float64) for v in (value, other))
        if near.shape == far.shape and not have_same_bits(value, other):
            distance = float(np.max(np.abs(near - far)))
            distances[key.variable] = max(distances.get(key.variable, 0.0), distance)
    return distances


def differ(observed: Trace, expected: Trace, phases: tuple[str, ...]) -> bool:
    """Whether values differ that are meant to be the same on every replica.

    What a replica keeps for itself follows from its own examples, and never from the
    global batch that one device was given beside the gradients.
    """
    own = {v.path for v in observed.variables if not v.synchronised}
    compared = Values(expected.values).keep(
        lambda key: key.phase in phases and key.variable not in own
    )
    return any(
        not have_same_bits(observed.get(key), value) for key, value in compared.items()
    )


def has_other_slices(observed: Trace, expected: Trace, phase: Phase) -> bool:
    """Whether sparse gradients of a phase come in other slices.

    What they add up to may be the same: a rule adds up the slices of a row as they
    come, and rounds others in another way.
    """
    return any(
        isinstance(seen, SparseRows)
        and isinstance(value, SparseRows)
        and not np.array_equal(seen.indices, value.indices)
        for key, value in expected.select(phase=phase)
        for seen in [observed.get(key)]
    )
