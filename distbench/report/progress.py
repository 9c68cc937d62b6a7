"""How far a check is: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Protocol, TextIO

from rich import progress as bars
from rich.console import Console

from distbench.options import Progress
from distbench.report.escape import escape_controls
from distbench.report.words import name_run
from distbench.verdict import Run


class ShownProgress(Progress, Protocol):
    """A progress that is shown while its context is open."""

    def __enter__(self) -> ShownProgress: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


def make_progress(console: Console, stream: TextIO | None = None) -> ShownProgress:
    """A bar if the console is a terminal, else plain lines on standard error."""
    if console.is_terminal and not console.is_dumb_terminal:
        return BarProgress(console)
    return LineProgress(stream or sys.stderr)


class LineProgress:
    """One line for each start and each judged run; flushed, for logs of CI."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._ids: list[str] = []

    def __enter__(self) -> LineProgress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    def plan(self, scenario_ids: Sequence[str]) -> None:
        """Say how many scenarios there are."""
        self._ids = list(scenario_ids)
        count = len(self._ids)
        self._say(f"{count} scenario{'' if count == 1 else 's'}")

    def start(self, scenario_id: str) -> None:
        """Say which scenario starts."""
        self._say(f"{self._number(scenario_id)} {scenario_id} ...")

    def finish(self, run: Run) -> None:
        """Say how a run ended."""
        self._say(
            f"{self._number(run.scenario)} {name_run(run)}: {run.status} "
            f"({run.checked} checked, {run.seconds:.1f} s)"
        )

    def _number(self, scenario_id: str) -> str:
        if scenario_id not in self._ids:
            return "[?]"
        return f"[{self._ids.index(scenario_id) + 1}/{len(self._ids)}]"

    def _say(self, line: str) -> None:
        print(escape_controls(line), file=self._stream, flush=True)


class BarProgress:
    """A progress bar; it leaves the screen when the check is over."""

    def __init__(self, console: Console) -> None:
        self._bar = bars.Progress(
            bars.SpinnerColumn(),
            bars.TextColumn("{task.description}", markup=False),
            bars.BarColumn(bar_width=24),
            bars.MofNCompleteColumn(),
            bars.TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._task = self._bar.add_task("starting", total=None)
        self._open: set[str] = set()

    def __enter__(self) -> BarProgress:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def plan(self, scenario_ids: Sequence[str]) -> None:
        """Set the length of the bar."""
        self._open = set(scenario_ids)
        self._bar.update(self._task, total=len(self._open))

    def start(self, scenario_id: str) -> None:
        """Show which scenario runs."""
        self._bar.update(self._task, description=escape_controls(scenario_id))

    def finish(self, run: Run) -> None:
        """Advance when the first run of a scenario was judged: all its tiers are."""
        if run.scenario in self._open:
            self._open.remove(run.scenario)
            self._bar.advance(self._task)
