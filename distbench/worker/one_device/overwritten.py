"""The update of sparse gradients of which not all slices of a row count."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from distbench.evidence import Tier
from distbench.trace import Phase, SparseRows, Trace, TraceKey, Values
from distbench.worker.one_device.feeder import Feeder
from distbench.worker.process.failures import SubjectError


def _keep_last(value: SparseRows) -> SparseRows:
    turned = replace(value, indices=value.indices[::-1], values=value.values[::-1])
    return _keep_first(turned)


def _keep_first(value: SparseRows) -> SparseRows:
    rows, first = np.unique(value.indices, return_index=True)
    return replace(value, indices=rows, values=value.values[first])


def _average(value: SparseRows) -> SparseRows:
    counts = value.count_rows()[value.indices]
    each = counts.reshape(-1, *(1 for _ in value.shape[1:]))
    values: npt.NDArray[np.generic] = value.values.astype(np.float64) / each
    return replace(value, values=values.astype(value.values.dtype))


_WAYS: Mapping[str, Callable[[SparseRows], SparseRows]] = {
    "last": _keep_last,
    "first": _keep_first,
    "mean": _average,
}
"""What becomes of the slices of a row, by what a note calls it."""


def overwrite_rows(
    feeder: Feeder, tier: Tier, given: Trace, phase: Phase = "reduced_gradient"
) -> tuple[Trace, ...]:
    """Feed gradients of which not all slices of a row count.

    A rule that takes its slices apart shows that in its state alone. A note says what
    counts of a row (`kept`): its `last` slice, its `first` one, or their `mean`. Empty
    where no row has several.

    Args:
        feeder: Runs the reference's steps.
        tier: Which one.
        given: Gradients, such as those that the cluster recorded.
        phase: Of which they are, and where they are fed.
    """
    repeated = {
        key: value.keep_inside()
        for key, value in given.select(phase=phase)
        if isinstance(value, SparseRows) and value.repeats_rows
    }
    if not repeated:
        return ()
    found: list[Trace] = []
    for name, change in _WAYS.items():
        values: Values[TraceKey] = Values(given.values)
        values.update({key: change(value) for key, value in repeated.items()})
        # A rule may refuse fewer slices than it would be handed.
        with suppress(SubjectError):
            changed = replace(given, values=values)
            found.append(feeder.feed(tier, changed, phase, kept=name))
    return tuple(found)
