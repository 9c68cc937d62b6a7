"""Whether larger gradients than those of a run are changed before they are summed."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from distbench.scenario.choices import LARGER
from distbench.trace import WHOLE, Phase, Trace, Value
from distbench.trace.numbers import densify, is_finite
from distbench.worker.one_device.feeder import Feeder
from distbench.worker.one_device.held_against import (
    are_multiples,
    pair_handed,
    take_whole,
)
from distbench.worker.one_device.other_batch import runs_changed
from distbench.worker.one_device.reference import Reference
from distbench.worker.process.failures import SubjectError
from distbench.worker.process.intercept import replace_attribute
from distbench.worker.state.values import are_near

_ENOUGH = 32.0
"""As many times larger gradients are larger than a clip in use, if one is there."""
_GIVEN: Phase = "local_gradient"
_HANDED: Phase = "reduced_gradient"


def limits_larger(feeder: Feeder, recorded: Trace) -> bool:
    """Whether one device changes larger gradients, and left all of a run as they are.

    A clip does so, and of one that was never needed nobody knows whether it comes
    before or behind the sum. A step on a batch with larger numbers tells, if the graph
    does not say that nothing is changed. Where that
    makes no gradient larger, as behind a tanh, or no single one is the replica's, as of
    micro-steps, what each tape gives is multiplied: such a step has to be traced.

    Args:
        feeder: Runs the reference's steps; it ran all of them before.
        recorded: What it recorded in them.
    """
    reference = feeder.reference
    if reference.hands_on_as_given:
        return False
    if not reference.session.tapped or not _hands_on(recorded):
        return False
    made = _take_larger_batch(reference)
    if made is not None and not _hands_on(made):
        return True
    if made is not None and _is_larger(made, recorded):
        return False
    return _limits_multiplied(feeder, recorded)


def _take_larger_batch(reference: Reference) -> Trace | None:
    """Gradients of a first batch of larger numbers, if these make finite ones."""
    if not runs_changed(reference, _enlarge):
        return None
    return _collect(reference)


def _enlarge(leaf: Any) -> Any:
    array = np.asarray(leaf)
    # Half precision would overflow, and what float16 is cast to may as well.
    if array.dtype not in (np.float32, np.float64):
        return leaf
    return array * array.dtype.type(LARGER)


def _is_larger(made: Trace, recorded: Trace) -> bool:
    """Whether each gradient that is handed on was seen at its tape, and is larger."""
    before = take_whole(recorded, _GIVEN, step=0)
    now = take_whole(made, _GIVEN)
    for key, _ in take_whole(made, _HANDED).select():
        at = replace(key, phase=_GIVEN)
        sizes = [_measure(trace.get(at)) for trace in (before, now)]
        if not sizes[1] >= _ENOUGH * sizes[0] or not sizes[1]:
            return False
    return True


def _measure(value: Value | None) -> float:
    return 0.0 if value is None else float(np.max(np.abs(densify(value)), initial=0.0))


def _limits_multiplied(feeder: Feeder, recorded: Trace) -> bool:
    """Whether less is handed on of larger gradients than a multiple.

    Where no tape gave the whole of a gradient, what is handed on stands for it: then
    two steps are compared, and smaller ones tell whether those of the run are left as
    they are.
    """
    larger = _multiply(feeder, LARGER)
    if larger is None:
        return False
    if not _hands_on(larger):
        return True
    handed = take_whole(recorded, _HANDED, step=0)
    # What follows from an update of the same step is no multiple of what it was.
    if larger.calls > 1 or _hands_multiples(handed, larger, LARGER):
        return False
    smaller = _multiply(feeder, 1 / LARGER)
    return smaller is not None and _hands_multiples(handed, smaller, 1 / LARGER)


def _hands_multiples(handed: Trace, made: Trace, times: float) -> bool:
    return are_multiples(handed, take_whole(made, _HANDED), times)


def _multiply(feeder: Feeder, times: float) -> Trace | None:
    """What the first step hands on where each tape gives so many times as much."""
    reference = feeder.reference
    session, batch = reference.session, reference.draw(0)
    weight = times * session.board.weight
    with suppress(SubjectError), feeder.trace_apart():
        session.restore_state(reference.initial)
        step = session.make_step()
        with (
            replace_attribute(session.board, "weight", weight),
            session.guard("step"),
        ):
            step.trace([batch])
        reference.run_whole(0, batch, step)
        return _collect(reference)
    return None


def _collect(reference: Reference) -> Trace | None:
    """What the step that was run left in its taps; None if not all of it is finite."""
    session, phases = reference.session, (_GIVEN, _HANDED)
    values = session.make_values()
    session.collect_taps(0, values, replica=WHOLE, phases=phases)
    made = reference.make_trace("larger", values)
    finite = all(is_finite(value) for _, value in made.select())
    return made if finite else None


def _hands_on(trace: Trace) -> bool:
    """Whether what one device reduces is what its tapes gave, but for roundings."""
    return all(
        handed is None or are_near(value, handed, trace.dtypes.get(key.variable))
        for key, value, handed in pair_handed(trace)
    )
