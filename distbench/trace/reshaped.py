"""Variables that a cluster makes in another shape than one device does.

A row for each replica, or each replica's part of a table: of such there is nothing on
one device to start from, or to be held against.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from distbench.trace import Trace
from distbench.trace.values import Values

RESHAPED = "reshaped"
"""Note of a trace that lacks such variables: by their paths, both shapes."""

Shape = tuple[int, ...]


def find_reshaped(observed: Trace, reference: Trace) -> dict[str, tuple[Shape, Shape]]:
    """By path, the shape on the cluster and that on one device, where these differ."""
    due = {info.path: info.shape for info in reference.variables}
    return {
        info.path: (info.shape, due[info.path])
        for info in observed.variables
        if info.path in due and info.shape != due[info.path]
    }


def leave_out_variables(trace: Trace, paths: Collection[str]) -> Trace:
    """A trace without some variables, and without metrics that are made of them."""
    if not paths:
        return trace
    return replace(
        trace,
        variables=tuple(info for info in trace.variables if info.path not in paths),
        values=Values(trace.values).keep(lambda key: key.variable not in paths),
        metrics=tuple(m for m in trace.metrics if not set(m.state) & set(paths)),
    )
