"""Traces of a check that outlive it, for `distbench trace`."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from distbench.errors import BadInputError, ClusterError, describe_unwritable
from distbench.escape import cut_name
from distbench.evidence import Evidence
from distbench.scenario.choices import TIERS
from distbench.trace.files import write_trace

_NAMES = ("observed", "reference")
_BESIDE = ".again"
"""Where those of another run are, until it is known which ones stand."""


def make_place(folder: Path) -> None:
    """Make the folder, before anything is run for it.

    Raises:
        BadInputError: It cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = describe_unwritable(error, folder)
        raise BadInputError(
            f"'{folder}' cannot be made: {why}. Expected: a folder for the traces."
        ) from error


class Kept:
    """Where the traces of a scenario are kept, a folder for each tier.

    Args:
        place: The folder; None keeps nothing.
    """

    def __init__(self, place: Path | None) -> None:
        self._place = place

    @classmethod
    def find(cls, folder: Path | None, scenario: str) -> Kept:
        """That of a scenario, by its id, in a folder of many; None keeps nothing."""
        return cls(None if folder is None else folder / cut_name(scenario))

    def write(self, evidence: Evidence) -> None:
        """Write what the cluster did, and what one device did, each as a folder.

        Raises:
            ClusterError: The machine could not write it, for lack of space for
                instance.
        """
        if self._place is None:
            return
        traces = (evidence.observed, evidence.reference)
        for name, trace in zip(_NAMES, traces, strict=True):
            place = self._place / evidence.tier / name
            make_place(place)
            try:
                write_trace(trace, place, "trace")
            except OSError as error:
                text = f"'{place}' could not be written: {error}."
                raise ClusterError(text) from error

    def clear(self) -> None:
        """Take away what an earlier check kept: it reads as what comes now."""
        if self._place is None:
            return
        shutil.rmtree(self._place / _BESIDE, ignore_errors=True)
        _clear_tiers(self._place)

    @contextlib.contextmanager
    def beside(self) -> Iterator[Kept]:
        """For another run of the scenario, whose traces are gone then if not taken."""
        other = Kept(None if self._place is None else self._place / _BESIDE)
        try:
            yield other
        finally:
            if other._place is not None:
                shutil.rmtree(other._place, ignore_errors=True)

    def take(self, other: Kept) -> None:
        """Have those of another run in the place of its own; see `beside`."""
        if self._place is None or other._place is None:
            return
        _clear_tiers(self._place)
        for place in other._place.glob("*/*"):
            own = self._place / place.relative_to(other._place)
            make_place(own.parent)
            place.rename(own)


def _clear_tiers(place: Path) -> None:
    for tier in TIERS:
        for name in _NAMES:
            shutil.rmtree(place / tier / name, ignore_errors=True)
        with contextlib.suppress(OSError):  # none is there, or somebody else's file is
            (place / tier).rmdir()
