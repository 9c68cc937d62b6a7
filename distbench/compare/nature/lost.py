"""How far gradients of a step may lie apart by rounding, in narrower dtypes as well."""

from __future__ import annotations

import math
from collections.abc import Sequence

from distbench.compare.arrays.bounds import find_roundoff
from distbench.compare.arrays.noise import Noise
from distbench.compare.nature.doubled import Margins, Places
from distbench.evidence import Evidence
from distbench.trace import TraceKey
from distbench.trace.numbers import measure_finite


def find_margins(noise: Noise, whole: Places, step: int) -> Margins:
    """How far values of a step may lie apart by rounding."""
    margins = {}
    for (variable, call), array in whole.items():
        key = TraceKey(step=step, phase="local_gradient", variable=variable, call=call)
        margins[variable, call] = noise.find_margin(key, array).widest
    return margins


def measure_lost(evidence: Evidence) -> float:
    """What a step that computes in a narrower dtype than its variables may lose.

    Half of that dtype's digits: twins that move the variables by one rounding of their
    own do not show it. 0 where all is computed in the variables' dtype.
    """
    u = find_roundoff(evidence.narrowest)
    kept = [v.dtype for v in evidence.reference.variables if v.role == "variable"]
    own = max(map(find_roundoff, kept), default=u)
    return math.sqrt(u) if u > own else 0.0


def widen(margins: Margins, whole: Places, lost: float) -> Margins:
    """Widen margins by the share of each value that a narrower dtype may lose."""
    return {
        place: max(margins[place], lost * measure_finite(array))
        for place, array in whole.items()
    }


def round_apart(
    evidence: Evidence, margins: Margins, shards: Sequence[Places]
) -> Margins:
    """What a shard and its double may differ by that are rounded each by itself.

    A CPU's kernels add up both alike, so that one is twice the other in all bits. A GPU
    chooses a kernel by the size of what it is given.
    """
    u = find_roundoff(evidence.narrowest)
    share = 2 * u if evidence.subject.other_kernels else 0.0
    return {
        place: max(
            margin, share * max(measure_finite(shard[place]) for shard in shards)
        )
        for place, margin in margins.items()
    }
