"""Steps on one device that use as scratch paper what the cluster's hold on theirs.

Whatever comes out otherwise then is made of that. What does not is not, however wrong
it is on the cluster.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from distbench.evidence import Tier
from distbench.trace import PHASES, STATE, Trace, TraceKey, Value, Values
from distbench.trace.numbers import densify, measure_finite
from distbench.worker.one_device.held_state import take_holding
from distbench.worker.one_device.reference import Reference
from distbench.worker.state.handles import Handles, list_written
from distbench.worker.state.values import are_near, count_digits


def hold_scratch(
    reference: Reference, tier: Tier, observed: Trace, recorded: Trace
) -> Trace | None:
    """What comes out otherwise where steps use what replicas hold of such state.

    Args:
        reference: Ran all steps of the tier before.
        tier: Which one.
        observed: What the cluster did.
        recorded: The single-device run.

    Returns:
        As `WHOLE`, of each step; `held` notes the paths of what was assigned. None
        where replicas hold what one device does, or it cannot be asked.
    """
    is_open = reference.session.program.is_compiled or reference.scenario.injected
    if is_open or not reference.repeats or observed.replicas == 1:
        return None
    # What else a step assigned before the last of it nobody saw.
    known = Handles(reference.session.table)
    written = Counter(map(known.find, list_written(reference.graph)))
    once = {info.path for info, n in written.items() if info is not None and n == 1}
    paths = [i.path for i in observed.variables if i.is_scratch and i.path in once]
    held = take_holding(reference, tier, observed, recorded, paths, PHASES)
    if held is None:
        return None
    values = {
        key: value
        for key, value in held.select()
        if (due := recorded.get(key)) is not None
        and key.variable not in paths
        and not _is_near(recorded, key, due, value)
    }
    return replace(held, values=Values(values))


def _is_near(recorded: Trace, key: TraceKey, due: Value, own: Value) -> bool:
    """Whether a step makes the same in two ways: of state, what it changes in it."""
    before = recorded.get(key.before) if key.phase in STATE else None
    start: npt.NDArray[Any] = np.zeros(()) if before is None else densify(before)
    dtype = recorded.dtypes.get(key.variable)
    noise = 2.0 ** (2 - count_digits(dtype or "float32")) * measure_finite(start)
    return are_near(
        densify(due) - start, densify(own) - start, dtype, find_noise=lambda: noise
    )
