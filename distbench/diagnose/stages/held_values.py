"""What one device has where it is assigned the state that the replicas hold."""

from __future__ import annotations

import numpy as np

from distbench.compare.comparison import Judged
from distbench.diagnose.clues.cases import take_rows
from distbench.trace import WHOLE, Trace
from distbench.trace.numbers import measure_errors

_FEW = 4
"""So many bounds may lie between two values, each within one of what it should be."""


def is_as_held(held: Trace, link: Judged) -> bool:
    """Whether one device then has what was seen.

    Args:
        held: Its steps; `Fed.held` or `Fed.scratch`.
        link: What was seen, with its numbers; if these were let go, nothing is known.
    """
    pair = link.pair
    value = None if pair is None else held.get(pair.key.at(WHOLE))
    if pair is None or value is None:
        return False
    due = take_rows(value, pair)
    if due.shape != pair.observed.shape:
        return False
    errors = measure_errors(pair.observed, due)
    return bool(np.all(errors <= _FEW * np.asarray(pair.margin.bound)))
