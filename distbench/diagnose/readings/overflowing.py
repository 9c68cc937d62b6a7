"""Steps in which either the replicas' shares or the whole batch's gradients overflow.

Under a loss scale one side leaves out a step then that the other one takes.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from distbench.compare.arrays.values import are_equal, densify
from distbench.evidence import Evidence
from distbench.trace import WHOLE, Value, Values


def list_overflowing(evidence: Evidence) -> frozenset[int]:
    """Those steps; none of a free run, in which later ones follow."""
    if evidence.tier == "free":
        return frozenset()
    steps = range(evidence.reference.steps)
    return frozenset(step for step in steps if _overflows_otherwise(evidence, step))


def _overflows_otherwise(evidence: Evidence, step: int) -> bool:
    """Whether gradients are finite on one side alone, for that reason."""
    is_seen = all(evidence.observed.find_finite(step).values())
    is_due = evidence.reference.find_finite(step).get(WHOLE, True)
    if is_seen and not is_due:
        return _takes_alone(evidence, step)
    return is_due and not is_seen and _leaves_out_alone(evidence, step)


def leave_steps(evidence: Evidence, steps: Collection[int]) -> Evidence:
    """An evidence without what was seen in some steps."""
    if not steps:
        return evidence
    observed = evidence.observed
    values = Values(observed.values).keep(lambda key: key.step not in steps)
    return replace(evidence, observed=replace(observed, values=values))


def _leaves_out_alone(evidence: Evidence, step: int) -> bool:
    """Whether shares overflow that are less than shards alone, which do as well.

    A shard alone has the mean over its own examples, which is more than its replica's
    share of it: where that overflows as well, nobody knows what is due.
    """
    pairs = [
        (_find_odd(seen), _find_odd(alone))
        for key, seen in evidence.observed.select(step=step, phase="local_gradient")
        if (alone := evidence.reference.get(key)) is not None
        and densify(alone).shape == densify(seen).shape
    ]
    is_within = not any((seen & ~alone).any() for seen, alone in pairs)
    is_more = any((alone & ~seen).any() for seen, alone in pairs)
    return is_within and is_more


def _takes_alone(evidence: Evidence, step: int) -> bool:
    """Whether replicas take a step that one device does not.

    Not even where it is given their sums: it decides by what its own tapes give.
    """
    replay = evidence.fed.replays.get("reduced_gradient")
    if replay is None:
        return False
    trained = {v.path for v in evidence.reference.variables if v.trainable}
    moved = [
        (densify(value), densify(before), densify(seen))
        for key, value in replay.select(step=step, phase="variable")
        if key.variable in trained
        and (before := evidence.get_before(step, "variable", key.variable)) is not None
        and (seen := evidence.observed.get(key)) is not None
    ]
    is_left = all(are_equal(value, before) for value, before, _ in moved)
    return is_left and any(not are_equal(seen, before) for _, before, seen in moved)


def _find_odd(value: Value) -> npt.NDArray[np.bool_]:
    """Elements that are Inf or NaN."""
    return ~np.isfinite(densify(value))
