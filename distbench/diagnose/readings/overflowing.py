"""Steps in which a share of a mean overflows on a replica, and the mean does not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from distbench.compare.arrays.spoilt import find_spoilt
from distbench.compare.arrays.values import densify
from distbench.evidence import Evidence
from distbench.trace import COMPUTED, Value, Values


def leave_overflowing(evidence: Evidence) -> tuple[Evidence, str]:
    """An evidence without what was seen in such steps, and a note of them.

    A shard alone has the mean over its own examples, which is more than its replica's
    share of it: where that overflows, nobody knows what is due. A loss scale leaves out
    the step, which one device takes.

    Returns:
        The evidence as it is and no note where there are none, and of a free run, in
        which later steps follow.
    """
    left = set() if evidence.tier == "free" else set(_list_overflowing(evidence))
    if not left:
        return evidence, ""
    observed = evidence.observed
    values = Values(observed.values).keep(lambda key: key.step not in left)
    steps = " and ".join(map(str, sorted(left)))
    note = (
        f"note: in step {steps} shares of a mean overflow of which the whole does not, "
        "so it was not judged"
    )
    return replace(evidence, observed=replace(observed, values=values)), note


def _list_overflowing(evidence: Evidence) -> Iterator[int]:
    reference, spoilt = evidence.reference, find_spoilt(evidence)
    for step in set(range(reference.steps)) - spoilt:
        pairs = [
            (_find_odd(seen), _find_odd(alone))
            for key, seen in evidence.observed.select(step=step)
            if key.phase in COMPUTED
            and (alone := reference.get(key)) is not None
            and densify(alone).shape == densify(seen).shape
        ]
        is_any = any(seen.any() for seen, _ in pairs)
        is_within = not any((seen & ~alone).any() for seen, alone in pairs)
        is_more = any((alone & ~seen).any() for seen, alone in pairs)
        if is_any and is_within and is_more:
            yield step


def _find_odd(value: Value) -> npt.NDArray[np.bool_]:
    """Elements that are Inf or NaN."""
    return ~np.isfinite(densify(value))
