"""Reduced gradients beside the sum of their addends."""

from __future__ import annotations

import numpy as np

from distbench.compare.arrays.measure import BITWISE
from distbench.compare.arrays.pair import SUM, Pair
from distbench.trace import TraceKey

Array = np.ndarray


def make_sum_pair(
    step: int, observed: Array, terms: list[Array], rows: Array | None = None
) -> Pair:
    """What replica 0 has of 'kernel' in a step, and what it should have."""
    return Pair(
        key=TraceKey(step=step, phase="reduced_gradient", variable="kernel", replica=0),
        relation="follows",
        against=SUM,
        observed=observed,
        expected=np.sum(terms, axis=0),
        margin=BITWISE,
        dtype="float32",
        terms=terms,
        rows=rows,
    )
