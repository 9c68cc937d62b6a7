"""Tells of the progress of several scenarios at a time."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from distbench.options import Progress
from distbench.scenario import Scenario
from distbench.verdict import Run


class Telling:
    """Tells somebody of progress, from one thread at a time.

    Args:
        progress: Who wants to know; None is nobody.
    """

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._lock = threading.Lock()
        self._noted: set[str] = set()

    def plan(self, scenarios: Sequence[Scenario]) -> None:
        """Called once, before the first of them starts."""
        if self._progress is not None:
            with self._lock:
                self._progress.plan(scenarios)

    def start(self, scenario_id: str) -> None:
        """Called when a scenario's cluster starts."""
        if self._progress is not None:
            with self._lock:
                self._progress.start(scenario_id)

    def finish(self, run: Run) -> None:
        """Called when a run was judged."""
        if self._progress is not None:
            with self._lock:
                self._progress.finish(run)

    def note(self, text: str) -> None:
        """Called with what the user should know meanwhile."""
        if self._progress is not None:
            with self._lock:
                self._progress.note(text)

    def note_once(self, text: str) -> None:
        """Called with what is as true of every cluster that is started."""
        with self._lock:
            is_new = text not in self._noted
            self._noted.add(text)
        if is_new:
            self.note(text)
