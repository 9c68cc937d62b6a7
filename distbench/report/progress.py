"""How far a check is: a bar for each cluster on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from types import TracebackType
from typing import Protocol, TextIO

from rich import progress as bars
from rich.console import Console

from distbench.errors import count_things
from distbench.escape import escape_controls
from distbench.options import Progress
from distbench.report.words import name_run
from distbench.scenario import Scenario
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
    """Bars if the console is a terminal, else plain lines on standard error."""
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

    def plan(self, scenarios: Sequence[Scenario]) -> None:
        """Say how many scenarios there are."""
        self._ids = [scenario.id for scenario in scenarios]
        self._say(count_things(len(self._ids), "scenario"))

    def start(self, scenario_id: str) -> None:
        """Say which scenario starts."""
        self._say(f"{self._number(scenario_id)} {scenario_id} ...")

    def finish(self, run: Run) -> None:
        """Say how a run ended."""
        self._say(
            f"{self._number(run.scenario)} {name_run(run)}: {run.status} "
            f"({run.checked} checked, {run.seconds:.1f} s)"
        )

    def note(self, text: str) -> None:
        """Say what is waited for."""
        self._say(text)

    def _number(self, scenario_id: str) -> str:
        if scenario_id not in self._ids:
            return "[?]"
        return f"[{self._ids.index(scenario_id) + 1}/{len(self._ids)}]"

    def _say(self, line: str) -> None:
        print(escape_controls(line), file=self._stream, flush=True)


class BarProgress:
    """A bar for each cluster; they leave the screen when the check is over."""

    def __init__(self, console: Console) -> None:
        self._bars = bars.Progress(
            bars.SpinnerColumn(),
            bars.TextColumn("{task.description}", markup=False),
            bars.BarColumn(bar_width=24),
            bars.MofNCompleteColumn(),
            bars.TimeElapsedColumn(),
            bars.TextColumn("{task.fields[scenario]}", markup=False),
            console=console,
            transient=True,
        )
        # What it takes to know the scenarios: the subject is loaded on one device.
        self._opening = self._bars.add_task("starting", total=None, scenario="")
        self._rows: dict[str, bars.TaskID] = {}
        self._running: dict[str, bars.TaskID] = {}
        self._open: dict[str, bars.TaskID] = {}

    def __enter__(self) -> BarProgress:
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bars.stop()

    def plan(self, scenarios: Sequence[Scenario]) -> None:
        """Make a bar for each cluster, as long as it has scenarios."""
        self._bars.remove_task(self._opening)
        counts = Counter(scenario.cluster for scenario in scenarios)
        self._rows = {
            cluster: self._bars.add_task(
                escape_controls(cluster), total=count, start=False, scenario=""
            )
            for cluster, count in counts.items()
        }
        self._open = {s.id: self._rows[s.cluster] for s in scenarios}

    def start(self, scenario_id: str) -> None:
        """Show which scenario runs, beside the bar of its cluster."""
        if scenario_id in self._open:
            self._running[scenario_id] = row = self._open[scenario_id]
            self._bars.start_task(row)
            self._show(row)

    def finish(self, run: Run) -> None:
        """Advance when the first run of a scenario was judged: all its tiers are."""
        if run.scenario not in self._open:
            return
        row = self._open.pop(run.scenario)
        self._running.pop(run.scenario, None)
        self._bars.advance(row)
        self._show(row)
        if row not in self._open.values():
            self._bars.stop_task(row)

    def note(self, text: str) -> None:
        """Show what is waited for above the bars."""
        self._bars.console.print(escape_controls(text), markup=False, highlight=False)

    def _show(self, row: bars.TaskID) -> None:
        """Name the scenarios of a cluster that run."""
        names = [name for name, place in self._running.items() if place == row]
        self._bars.update(row, scenario=escape_controls(", ".join(names)))
