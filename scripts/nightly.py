"""Run the full tier on whatever this machine has, and say what is new.

Every file of scenarios/, then `distbench check` of each optimizer in several dtypes and
batch sizes, on all cores and all GPUs. Each is a process of its own: one that fails,
hangs or crashes never stops the night. What came out goes into a dated folder
(verdict.json, junit.xml, report.html, summary.txt, jobs/) and into a history.

    scripts/nightly --until 06:00                      # what is not reached is named
    scripts/nightly --only 'adam-*' --hours 1          # a part of it
    scripts/nightly --list                             # says what would be run

Exit code 0: all passed, but for what the quarantine list knows. 1: something failed.
2: bad usage. 3: a cluster, the machine or a job failed. 4: something was undecided.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import io
import math
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

from measured import ROOT, find_commit
from nightly_jobs import Done, run_job
from nightly_jobs import Limits as JobLimits
from nightly_options import choose_jobs, find_end, is_whole, parse_arguments
from nightly_plan import Job
from rich.console import Console, RenderableType

from distbench.errors import BadInputError, ClusterError
from distbench.gpus import VISIBLE
from distbench.history.changes import compare_nights, gather_latest
from distbench.history.drift import find_drifts, find_flaky
from distbench.history.limits import Limits
from distbench.history.night import Night, make_night
from distbench.history.quarantine import Entry, apply_quarantine, read_quarantine
from distbench.history.store import History
from distbench.machine import describe_machine
from distbench.options import CheckOptions
from distbench.report.files import write_report
from distbench.report.junit import verdict_to_junit
from distbench.report.nights import (
    render_comparison,
    render_drifts,
    render_flaky,
    render_quarantined,
    render_red,
    render_remarks,
    render_skipped,
)
from distbench.report.page import verdict_to_html
from distbench.report.table import make_console
from distbench.report.words import summarise
from distbench.verdict import Verdict, merge_verdicts
from distbench.verdict.document import verdict_to_json

_BAD_USAGE, _BROKEN = 2, 3


class Nightly:
    """One night: jobs one after the other, then what came out of all of them.

    Args:
        folder: Where it writes.
        options: What was asked for.
        until: When it has to be over; None for never.
    """

    def __init__(
        self,
        folder: Path,
        options: argparse.Namespace,
        until: datetime.datetime | None,
    ) -> None:
        self._folder = folder
        self._options = options
        self._until = until
        self._started = datetime.datetime.now(datetime.timezone.utc)
        self._stopped = False
        self._left_out: list[str] = []
        self._verdicts: list[Verdict] = []

    def listen(self) -> None:
        """End the night early, as its deadline would, when a signal asks for it."""
        terminals = [fd for fd in (1, 2) if os.isatty(fd)]

        def stop(number: int, _: FrameType | None) -> None:
            self._stopped = True
            if number == signal.SIGHUP:
                # The terminal is gone, and what is printed there would raise.
                nowhere = os.open(os.devnull, os.O_WRONLY)
                for terminal in terminals:
                    os.dup2(nowhere, terminal)

        # A queue that takes the machine away asks first; what there is gets written.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, stop)
        # What is ignored stays so: 'nohup' asks for it.
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            signal.signal(signal.SIGHUP, stop)

    def is_over(self) -> bool:
        """Whether no job may go on."""
        now = datetime.datetime.now(datetime.timezone.utc)
        return self._stopped or (self._until is not None and now >= self._until)

    def run(self, jobs: Sequence[Job]) -> None:
        """Run what there is time for."""
        place = self._folder / "jobs"
        place.mkdir()
        limits = JobLimits(
            seconds=60.0 * self._options.job_minutes, is_over=self.is_over
        )
        for number, job in enumerate(jobs, 1):
            if self.is_over():
                self._left_out.append(job.name)
                continue
            begin_s = time.monotonic()
            done = run_job(job, place, ROOT, limits)
            self._keep(job, done)
            print(
                f"[{number}/{len(jobs)}] {job.name}: "
                + ("ended with the night, " if done.is_cut else "")
                + f"{summarise(done.verdict)} ({time.monotonic() - begin_s:.0f} s)",
                flush=True,
            )

    def _keep(self, job: Job, done: Done) -> None:
        self._verdicts.append(done.verdict)
        if done.is_cut:
            self._left_out.append(job.name)

    def finish(self, entries: Sequence[Entry]) -> int:
        """Write, keep and tell what came out; returns the exit code."""
        today = self._started.astimezone().date()
        found = apply_quarantine(
            self._merge(),
            entries,
            today,
            is_whole=not self._left_out and is_whole(self._options),
        )
        verdict = found.verdict
        for name, text in (
            ("verdict.json", verdict_to_json(verdict) + "\n"),
            ("junit.xml", verdict_to_junit(verdict)),
            ("report.html", verdict_to_html(verdict, CheckOptions())),
        ):
            write_report(self._folder / name, text)
        lines: list[RenderableType] = []
        code = verdict.exit_code
        try:
            lines += self._compare(make_night(verdict, root=ROOT))
        except (BadInputError, ClusterError) as error:
            lines.append(f"history: {error}")
            code = code if code in (1, _BROKEN) else _BROKEN
        lines += render_remarks(found.remarks)
        if self._left_out:
            lines.append(f"no time for: {', '.join(self._left_out)}")
        lines.append(f"{summarise(verdict)}; see {self._folder}")
        self._tell(lines)
        return code

    def _merge(self) -> Verdict:
        """All verdicts as one, of the night and of this machine."""
        merged = merge_verdicts(self._verdicts)
        environment = {
            **merged.environment,
            "machine": dict(describe_machine(self._options.engine)),
            "commit": find_commit(),
        }
        # What the bench gave to the tasks of the last job says nothing of the night.
        environment.pop("devices", None)
        variables = {**environment.get("variables", {})}
        variables.pop(VISIBLE, None)
        environment["variables"] = variables
        return dataclasses.replace(
            merged, target="nightly", environment=environment, begun=self._started
        )

    def _compare(self, tonight: Night) -> Iterator[RenderableType]:
        """Keep the night, and hold it against those before it on such a machine."""
        limits = Limits(window=self._options.window)
        store = History(self._options.history)
        earlier: Sequence[Night] = ()
        if self._options.history.is_file():
            earlier = store.list_nights(limits.window - 1, tonight.machine)
        number = store.add(tonight)
        nights = [*earlier, tonight]
        yield from render_skipped(tonight)
        yield from render_quarantined(tonight)
        yield from render_red(tonight)
        yield from render_drifts(find_drifts(nights, limits))
        yield from render_flaky(find_flaky(nights, limits))
        before = gather_latest(earlier, [row.key for row in tonight.rows])
        if before is not None:
            # Of times the drifts tell: two single runs differ by what the machine did.
            statuses = dataclasses.replace(limits, time_ratio=math.inf)
            yield from render_comparison(compare_nights(before, tonight, statuses))
        yield f"night {number} of {self._options.history}"

    def _tell(self, lines: Sequence[RenderableType]) -> None:
        """Print the summary, and write it down."""
        text = io.StringIO()
        console = Console(file=text, width=200, highlight=False, markup=False)
        shown = make_console()
        for line in lines:
            console.print(line, soft_wrap=True)
            shown.print(line, soft_wrap=True, markup=False)
        write_report(self._folder / "summary.txt", text.getvalue())


def make_folder(out: Path, now: datetime.datetime) -> Path:
    """A folder of its own for each night, also of nights that begin together."""
    out.mkdir(parents=True, exist_ok=True)
    name = f"{now.astimezone():%Y-%m-%dT%H%M}"
    for number in range(1, 1000):
        folder = out / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder
    raise ClusterError(f"'{out}' has a thousand nights of one minute.")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a night; returns its exit code."""
    options = parse_arguments(arguments, __doc__.partition("\n")[0])
    try:
        Limits(window=options.window)
        jobs = choose_jobs(options)
        entries = read_quarantine(options.quarantine) if options.quarantine else ()
    except BadInputError as error:
        print(f"nightly: {error}", file=sys.stderr)
        return _BAD_USAGE
    if options.list:
        for job in jobs:
            print(f"{job.name:<32} {' '.join(job.words)}")
        return 0
    now = datetime.datetime.now(datetime.timezone.utc)
    try:
        folder = make_folder(options.out, now)
        night = Nightly(folder, options, find_end(options, now))
        night.listen()
        print(f"jobs: {len(jobs)}, into {folder}", flush=True)
        night.run(jobs)
        return night.finish(entries)
    except (ClusterError, OSError) as error:
        print(f"nightly: {error}", file=sys.stderr)
        return _BROKEN


if __name__ == "__main__":
    sys.exit(main())
