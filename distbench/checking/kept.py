"""Traces of a check that outlive it, for `distbench trace`."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from distbench.errors import BadInputError, ClusterError
from distbench.escape import cut_name
from distbench.evidence import Evidence
from distbench.scenario.choices import TIERS
from distbench.trace.files import write_trace

_NAMES = ("observed", "reference")


def make_place(folder: Path) -> None:
    """Make the folder, before anything is run for it.

    Raises:
        BadInputError: It cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInputError(
            f"'{folder}' cannot be made: {error}. Expected: a folder for the traces."
        ) from error


def keep_traces(folder: Path, scenario: str, evidence: Evidence) -> None:
    """Write what the cluster did, and what one device did, each as a folder.

    Args:
        folder: Gets a subfolder for the scenario, and in it one for the tier.
        scenario: Its id.
        evidence: What was recorded.

    Raises:
        ClusterError: The machine could not write it, for lack of space for instance.
    """
    traces = (evidence.observed, evidence.reference)
    for name, trace in zip(_NAMES, traces, strict=True):
        place = folder / cut_name(scenario) / evidence.tier / name
        make_place(place)
        try:
            write_trace(trace, place, "trace")
        except OSError as error:
            raise ClusterError(f"'{place}' could not be written: {error}.") from error


def clear_traces(folder: Path, scenario: str) -> None:
    """Take away what an earlier check kept of a scenario: it reads as what comes now.

    Args:
        folder: That of the traces.
        scenario: Its id.
    """
    place = folder / cut_name(scenario)
    for tier in TIERS:
        for name in _NAMES:
            shutil.rmtree(place / tier / name, ignore_errors=True)
        with contextlib.suppress(OSError):  # none is there, or somebody else's file is
            (place / tier).rmdir()
