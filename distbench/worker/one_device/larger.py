"""Whether larger gradients than those of a run are changed before they are summed."""

from __future__ import annotations

from typing import Any

import numpy as np

from distbench.trace import WHOLE, Phase, Trace
from distbench.worker.one_device.held_against import pair_handed
from distbench.worker.one_device.other_batch import runs_changed
from distbench.worker.one_device.reference import Reference
from distbench.worker.state.values import are_near, widen

_TIMES = 1024.0
"""As many times larger numbers in the batch make gradients larger than any clip."""
_GRADIENTS: tuple[Phase, ...] = ("local_gradient", "reduced_gradient")


def limits_larger(reference: Reference, recorded: Trace) -> bool:
    """Whether one device changes larger gradients, and left all of a run as they are.

    A clip does so, and of one that was never needed nobody knows whether it comes
    before or behind the sum. A step on a batch with larger numbers tells.

    Args:
        reference: Ran all its steps before.
        recorded: What it recorded in them.

    Returns:
        False also where the batch has no numbers that can be larger, or one device
        does not come to finite gradients of them.
    """
    session = reference.session
    if not session.tapped or not _hands_on(recorded):
        return False
    if not runs_changed(reference, _enlarge):
        return False
    values = session.make_values()
    session.collect_taps(0, values, replica=WHOLE, phases=_GRADIENTS)
    made = reference.make_trace("larger", values)
    finite = all(np.isfinite(widen(value)).all() for _, value in made.select())
    return finite and not _hands_on(made)


def _enlarge(leaf: Any) -> Any:
    array = np.asarray(leaf)
    # Half precision would overflow, and what float16 is cast to may as well.
    if array.dtype not in (np.float32, np.float64):
        return leaf
    return array * array.dtype.type(_TIMES)


def _hands_on(trace: Trace) -> bool:
    """Whether what one device reduces is what its tapes gave, but for roundings."""
    return all(
        handed is None or are_near(value, handed, trace.dtypes.get(key.variable))
        for key, value, handed in pair_handed(trace)
    )
