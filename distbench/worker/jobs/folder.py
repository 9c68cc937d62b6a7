"""Traces that the tasks of a run leave for each other, by their names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from distbench.trace import Trace, merge_traces
from distbench.trace.files import read_trace
from distbench.trace.reshaped import find_reshaped, leave_out_variables

CHECKPOINT = "checkpoint"
"""Prefix of what a cluster saves for another to restore."""


def read_observed(payload: Mapping[str, Any], tier: str) -> Trace:
    """What all tasks of the cluster observed in a tier."""
    folder = Path(payload["folder"])
    parts = [
        replace(read_trace(folder, f"observed-{tier}-{task}"), name=str(task))
        for task in payload["tasks"]
    ]
    return merge_traces(str(payload["cluster"]), parts)


def read_reference(payload: Mapping[str, Any], tier: str) -> Trace:
    """What one device did in a tier."""
    return read_trace(Path(payload["reference"]), f"reference-{tier}")


def read_both(payload: Mapping[str, Any], tier: str) -> tuple[Trace, Trace]:
    """Both, without the variables that have another shape on the cluster."""
    observed, reference = read_observed(payload, tier), read_reference(payload, tier)
    paths = find_reshaped(observed, reference)
    return leave_out_variables(observed, paths), leave_out_variables(reference, paths)
