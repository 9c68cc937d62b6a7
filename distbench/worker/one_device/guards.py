"""Whether a step is left out where its gradients are not finite."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from distbench.fault import Fault
from distbench.trace import WHOLE, Trace
from distbench.worker.one_device.reference import Reference
from distbench.worker.process.failures import SubjectError
from distbench.worker.state.values import are_equal, widen
from distbench.worker.subjects.left_out import LeftOut


def leaves_out_overflow(reference: Reference, recorded: Trace) -> bool:
    """Whether one device leaves its model as it is where a gradient is not finite.

    A loss scale does so, or a guard of the user's. It is told by a step on a batch of
    which one example is infinite, where the batch itself has the step change something;
    and, as that leaves no gradient finite, by a step with a single NaN.

    Args:
        reference: Ran all its steps before.
        recorded: What it recorded in them.

    Returns:
        False also where a gradient of these steps was not finite: then it was seen.
    """
    session = reference.session
    gradients = recorded.select(phase="local_gradient", replica=WHOLE)
    if not all(np.isfinite(widen(gradient)).all() for _, gradient in gradients):
        return False
    model = {v.path for v in session.variables if v.role == "variable" and v.trainable}
    batch = reference.draw(0)
    poisoned = tf.nest.map_structure(_poison, batch)
    try:
        moved, left = (_changes(reference, b, model) for b in (batch, poisoned))
    except SubjectError:
        return False
    if left or not moved:
        return False
    session.restore_state(reference.initial)
    single = LeftOut(session, [Fault.corrupt(rank=0, step=0)])
    return single.find_whole(0, batch) is not None


def _changes(reference: Reference, batch: Any, paths: set[str]) -> bool:
    session = reference.session
    session.restore_state(reference.initial)
    reference.run_whole(0, batch)
    after = session.read_state(paths)
    return any(not are_equal(after[key], reference.initial[key]) for key in after)


def _poison(leaf: Any) -> Any:
    array = np.array(leaf)
    if np.issubdtype(array.dtype, np.floating) and array.ndim:
        array[-1] = np.inf
    return array
