"""A step on a batch with other numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from distbench.worker.one_device.reference import Reference
from distbench.worker.process.failures import SubjectError
from distbench.worker.taps.collect import State


def runs_changed(
    reference: Reference,
    change: Callable[[Any], Any],
    *,
    step: int = 0,
    start: State | None = None,
) -> bool:
    """Run a step on a batch of which each array is changed.

    Args:
        reference: Ran all its steps before.
        change: Makes another array of one.
        step: Its number.
        start: The state that it begins from; None is the initial one.

    Returns:
        False where that changes no number, so that nothing is run, or the subject
        refuses such a batch.
    """
    batch = reference.draw(step)
    changed = tf.nest.map_structure(change, batch)
    pairs = zip(tf.nest.flatten(changed), tf.nest.flatten(batch), strict=True)
    if all(np.array_equal(new, old) for new, old in pairs):
        return False
    try:
        reference.session.restore_state(reference.initial if start is None else start)
        reference.run_whole(step, changed)
    except SubjectError:
        return False
    return True
