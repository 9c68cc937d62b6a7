"""Whether a step is left out where its gradients are not finite."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from distbench.errors import BadInputError
from distbench.fault import Fault
from distbench.trace import INITIAL, WHOLE, Trace
from distbench.trace.dtypes import is_floating
from distbench.trace.numbers import is_finite
from distbench.worker.one_device.left_out import LeftOut
from distbench.worker.one_device.other_batch import runs_changed
from distbench.worker.one_device.reference import Reference
from distbench.worker.state.values import have_same_bits


def leaves_out_overflow(reference: Reference, recorded: Trace) -> bool:
    """Whether one device leaves its model as it is where a gradient is not finite.

    A loss scale does so, or a guard of the user's. It is told by a step on a batch of
    which one example is infinite, where the batch itself has the step change something;
    and, as that leaves no gradient finite, by a step with a single NaN.

    Args:
        reference: Ran all its steps before.
        recorded: What it recorded in them.

    Returns:
        False also where a gradient of these steps was not finite: then it was seen. And
        where XLA compiles the step as a whole: no gradient of it can be made a NaN.
    """
    session = reference.session
    if not session.tapped:
        return False
    gradients = recorded.select(phase="local_gradient", replica=WHOLE)
    if not all(is_finite(gradient) for _, gradient in gradients):
        return False
    model = {v.path for v in session.variables if v.role == "variable" and v.trainable}
    if not _moves(recorded, model) or not runs_changed(reference, _poison):
        return False
    batch, before, left = reference.draw(0), reference.initial, session.read_state()
    single = LeftOut(session, [Fault.corrupt(rank=0, step=0)])
    try:
        if not single.is_left_out(0, batch, before, left):
            return False
        session.restore_state(before)
        return single.find_whole(0, batch) is not None
    except BadInputError:  # It takes no gradient by a tape, which could be changed.
        return False


def _moves(recorded: Trace, paths: set[str]) -> bool:
    """Whether the first step changes any of these variables."""
    return any(
        key.variable in paths
        and not have_same_bits(recorded.get(replace(key, step=INITIAL)), value)
        for key, value in recorded.select(step=0, phase="variable", replica=WHOLE)
    )


def _poison(leaf: Any) -> Any:
    array = np.array(leaf)
    if is_floating(array.dtype) and array.ndim:
        array[-1] = np.inf
    return array
