"""Whether a step is left out where its gradients are not finite."""

from __future__ import annotations

from typing import Any

import numpy as np

from distbench.errors import BadInputError
from distbench.evidence import Tier
from distbench.fault import Fault
from distbench.trace import WHOLE, Trace
from distbench.trace.dtypes import is_floating
from distbench.worker.one_device.left_out import LeftOut
from distbench.worker.one_device.other_batch import runs_changed
from distbench.worker.one_device.reference import Reference
from distbench.worker.state.values import have_same_bits
from distbench.worker.taps.collect import State


def leaves_out_overflow(reference: Reference, recorded: Trace, tier: Tier) -> bool:
    """Whether one device leaves its model as it is where a gradient is not finite.

    A loss scale does so, or a guard of the user's. It is told by a step on a batch of
    which one example is infinite, where the batch itself has the step change something;
    and, as that leaves no gradient finite, by a step with a single NaN. It is asked
    though gradients overflow in other steps: replicas' own may have been finite there.

    Args:
        reference: Ran all its steps before.
        recorded: What it recorded in them.
        tier: In which tier.

    Returns:
        False also where no step has finite gradients. And where XLA compiles the step
        as a whole: no gradient of it can be made a NaN.
    """
    session = reference.session
    if not session.tapped:
        return False
    asked = next(
        (
            (step, batch, before)
            for step, batch, before in reference.list_steps(tier)
            if _may_ask(reference, recorded, step, before)
        ),
        None,
    )
    if asked is None:
        return False
    step, batch, before = asked
    if not runs_changed(reference, _poison, step=step, start=before):
        return False
    left = session.read_state()
    single = LeftOut(session, [Fault.corrupt(rank=0, step=step)])
    try:
        if not single.is_left_out(step, batch, before, left):
            return False
        session.restore_state(before)
        return single.find_whole(step, batch) is not None
    except BadInputError:  # It takes no gradient by a tape, which could be changed.
        return False


def _may_ask(reference: Reference, recorded: Trace, step: int, before: State) -> bool:
    """Whether gradients of a step are finite, and it changes what is trained."""
    if not recorded.find_finite(step).get(WHOLE, True):
        return False
    variables = reference.session.variables
    model = {v.path for v in variables if v.role == "variable" and v.trainable}
    found = recorded.select(step=step, phase="variable", replica=WHOLE)
    return any(
        key.variable in model
        and not have_same_bits(before.get((key.variable, 0)), value)
        for key, value in found
    )


def _poison(leaf: Any) -> Any:
    array = np.array(leaf)
    if is_floating(array.dtype) and array.ndim:
        array[-1] = np.inf
    return array
