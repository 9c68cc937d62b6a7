"""What leads the state that a program keeps by hand: gradients, or examples as well."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from distbench.evidence import Tier
from distbench.trace import Trace
from distbench.trace.dtypes import is_floating
from distbench.worker.one_device.feeder import Feeder, Start, keep, repeat_first
from distbench.worker.one_device.held_against import (
    change_gradients,
    measure_distances,
    take_whole,
)
from distbench.worker.one_device.reference import Reference
from distbench.worker.process.failures import SubjectError
from distbench.worker.taps.collect import State


@dataclass(frozen=True, slots=True, kw_only=True)
class StateByHand:
    """Variables of the model by what leads them.

    Attributes:
        kept: They follow from the gradients of others, and not from examples.
        steered: They move by what the step keeps of the examples besides gradients.
    """

    kept: tuple[str, ...] = ()
    steered: tuple[str, ...] = ()


def find_state_by_hand(feeder: Feeder, tier: Tier, reference: Trace) -> StateByHand:
    """Feed one device with its own gradients, and with a batch of one example alone.

    Of a step that shows no gradients, as it asks for several of each variable, nobody
    can tell what follows from them; it is taken as it is.

    Args:
        feeder: Runs the reference's steps.
        tier: Which one.
        reference: What one device recorded in it.
    """
    own = take_whole(reference, "local_gradient")
    trained = {key.variable for key in own.values}
    if not trained:
        trained = {v.path for v in reference.variables if v.trainable}

    def run(change: Any = None, move: Start = keep) -> Trace:
        if not own.values:
            return _take_steps(feeder.reference, tier, change, move)
        return feeder.feed(tier, own, "local_gradient", change=change, move=move)

    moved: Collection[str] = ()
    try:
        first, other = run(), run(repeat_first)
        if own.values:
            # Sparse ones of 0 have the rows that they have anyway.
            still = change_gradients(own, np.zeros_like)
            silent = feeder.feed(tier, still, "local_gradient")
            moved = measure_distances(first, silent)
    except SubjectError:
        return StateByHand()  # a program may take no other batch than its own
    far = measure_distances(first, other)
    rest = [
        v.path
        for v in reference.variables
        if v.role == "variable" and v.path not in trained
    ]
    led = [path for path in rest if path in far]
    steered: Collection[str] = ()
    if led:
        with suppress(SubjectError):
            # Gradients that are put in are the same wherever such state starts.
            steered = measure_distances(first, run(move=partial(_enlarge, led)))
    return StateByHand(
        kept=tuple(path for path in rest if path in moved and path not in far),
        steered=tuple(path for path in steered if path not in led),
    )


def _take_steps(
    reference: Reference, tier: Tier, change: Any = None, move: Start = keep
) -> Trace:
    """The state after each step as it is, as that of replica 0."""
    session, values = reference.session, reference.session.make_values()
    for step, batch, before in reference.list_steps(tier):
        session.restore_state(move(step, before))
        reference.run_whole(step, batch if change is None else change(batch))
        session.collect_state(step, session.read_state(), values, replica=0)
    return reference.make_trace("taken again", values)


def _enlarge(paths: Collection[str], _: int, before: State) -> State:
    """State of these paths, larger in each element, whatever it was."""
    return {
        place: _increase(array)
        if place[0] in paths and is_floating(array.dtype)
        else array
        for place, array in before.items()
    }


def _increase(array: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    wide = array.astype(np.float64)
    return (wide + 0.5 * np.abs(wide) + 0.25).astype(array.dtype)
