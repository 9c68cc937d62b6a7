"""Steps of variables that are in no shards, from the state of those that are."""

from __future__ import annotations

import numpy as np

from distbench.trace import STATE, WHOLE, Trace
from distbench.worker.one_device.reference import Reference


def run_uncut(reference: Reference, recorded: Trace) -> Trace:
    """Take each step from what shards held before it, put together.

    Args:
        reference: Of a subject whose variables are whole.
        recorded: What one device recorded of the same one in shards.

    Returns:
        The state after each step. What has another shape in shards, as a number for
        each of them, goes on from the step before.
    """
    session = reference.session
    values = session.make_values()
    state = reference.initial
    for step in range(reference.scenario.steps):
        before = {
            key.variable: value
            for key, value in recorded.select(step=step - 1, replica=WHOLE)
            if key.phase in STATE and isinstance(value, np.ndarray)
        }
        session.restore_state({**state, **reference.recut(before)})
        reference.run_whole(step, reference.draw(step))
        state = session.read_state()
        session.collect_state(step, state, values, replica=WHOLE)
    return reference.make_trace("uncut", values)
