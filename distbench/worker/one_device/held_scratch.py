"""Steps on one device that use as scratch paper what the cluster's hold on theirs.

Whatever comes out otherwise then is made of that. What does not is not, however wrong
it is on the cluster.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from distbench.evidence import Tier
from distbench.trace import (
    PHASES,
    STATE,
    SUMMED,
    UPDATED,
    Trace,
    TraceKey,
    Value,
    Values,
)
from distbench.worker.one_device.held_state import take_holding
from distbench.worker.one_device.reference import Reference
from distbench.worker.state.values import are_near, count_digits, widen


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
        As `WHOLE`, of each step; `held` notes the paths of what was assigned, `between`
        of what Python reads of it between two steps, and `limits` whether anything is
        neither the same nor an N-th then: a limit made a difference. None where
        replicas hold what one device does, or it cannot be asked.
    """
    is_open = reference.session.program.is_compiled or reference.scenario.injected
    if is_open or not reference.repeats or observed.replicas == 1:
        return None
    paths = [info.path for info in observed.variables if info.is_scratch]
    held = take_holding(reference, tier, observed, recorded, paths, PHASES)
    if held is None:
        return None
    values: dict[TraceKey, Value] = {}
    summed = {key.variable for key in held.values if key.phase in SUMMED}
    owners = {info.path: info.owner for info in held.variables}
    limits = False
    for key, value in held.select():
        due = recorded.get(key)
        if due is None or key.variable in paths:
            continue
        moved = _Moved(recorded, key, due, value)
        if moved.is_near():
            continue
        values[key] = value
        # What a rule makes of a sum may be no N-th because of the rule.
        is_ruled = key.phase in STATE and owners.get(key.variable) in summed
        if key.phase in (*SUMMED, *UPDATED) and not is_ruled:
            limits |= not moved.is_near(1 / observed.replicas)
    notes = {**held.notes, "limits": limits}
    return replace(held, values=Values(values), notes=notes)


class _Moved:
    """What a step makes of a value in two ways: of state, what it changes in it."""

    def __init__(self, recorded: Trace, key: TraceKey, due: Value, own: Value) -> None:
        before = recorded.get(key.before) if key.phase in STATE else None
        start: npt.NDArray[Any] = np.zeros(()) if before is None else widen(before)
        self._dtype = recorded.dtypes.get(key.variable)
        self._due, self._own = widen(due) - start, widen(own) - start
        digits = count_digits(self._dtype or "float32")
        self._noise = 2.0 ** (2 - digits) * float(np.max(np.abs(start), initial=0.0))

    def is_near(self, part: float = 1.0) -> bool:
        """Whether the second is such a part of the first, but for roundings."""
        return are_near(
            self._due,
            self._own,
            self._dtype,
            part=part,
            find_noise=lambda: self._noise,
        )
