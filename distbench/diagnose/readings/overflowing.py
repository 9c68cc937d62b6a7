"""Steps in which either the replicas' shares or the whole batch's gradients overflow.

Under a loss scale one side leaves out a step then that the other one takes.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from distbench.compare.arrays.spoilt import find_spoilt
from distbench.compare.arrays.values import are_equal, densify
from distbench.evidence import Evidence
from distbench.trace import COMPUTED, Value, Values


def list_overflowing(evidence: Evidence) -> frozenset[int]:
    """Those steps; none of a free run, in which later ones follow."""
    if evidence.tier == "free":
        return frozenset()
    spoilt = find_spoilt(evidence)
    return frozenset(
        step
        for step in range(evidence.reference.steps)
        if (_takes_alone if step in spoilt else _leaves_out_alone)(evidence, step)
    )


def leave_steps(evidence: Evidence, steps: Collection[int]) -> Evidence:
    """An evidence without what was seen in some steps."""
    if not steps:
        return evidence
    observed = evidence.observed
    values = Values(observed.values).keep(lambda key: key.step not in steps)
    return replace(evidence, observed=replace(observed, values=values))


def note_overflowing(steps: Collection[int]) -> str:
    """What is said of these; empty where there are none."""
    if not steps:
        return ""
    return (
        f"note: in step {' and '.join(map(str, sorted(steps)))} either the replicas' "
        "shares overflow or the gradients of the whole batch, and not both, so it was "
        "not judged"
    )


def _leaves_out_alone(evidence: Evidence, step: int) -> bool:
    """Whether some share of a mean overflows in a step in which the mean does not.

    A shard alone has the mean over its own examples, which is more than its replica's
    share of it: where that overflows as well, nobody knows what is due.
    """
    pairs = [
        (_find_odd(seen), _find_odd(alone))
        for key, seen in evidence.observed.select(step=step)
        if key.phase in COMPUTED
        and (alone := evidence.reference.get(key)) is not None
        and densify(alone).shape == densify(seen).shape
    ]
    is_any = any(seen.any() for seen, _ in pairs)
    is_within = not any((seen & ~alone).any() for seen, alone in pairs)
    is_more = any((alone & ~seen).any() for seen, alone in pairs)
    return is_any and is_within and is_more


def _takes_alone(evidence: Evidence, step: int) -> bool:
    """Whether replicas, of which none overflows, take a step that one device does not.

    Not even where it is given their sums: it decides by what its own tapes give.
    """
    replay = evidence.fed.replays.get("reduced_gradient")
    gradients = [
        v for k, v in evidence.observed.select(step=step) if k.phase in COMPUTED
    ]
    if replay is None or any(_find_odd(value).any() for value in gradients):
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
