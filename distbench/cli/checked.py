"""One check, from its options to the reports."""

from __future__ import annotations

import datetime
import shlex
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import typer

from distbench.checking.check import check_target
from distbench.cli.outcome import say
from distbench.errors import NOT_JUDGED, BadInputError, ClusterError, describe_end
from distbench.escape import escape_controls
from distbench.history.quarantine import Entry, Quarantined, apply_quarantine
from distbench.launch.spares import Spares
from distbench.machine import describe_bench
from distbench.options import CheckOptions, describe_options, list_tiers
from distbench.report.files import STDOUT, set_aside, write_report
from distbench.report.forms import FORMS, Reports
from distbench.report.nights import render_remarks
from distbench.report.progress import make_progress
from distbench.report.table import make_console, render_verdict
from distbench.target import TargetRef
from distbench.verdict import Run, Status, Verdict


def check_once(
    ref: TargetRef,
    options: CheckOptions,
    *,
    known: tuple[Entry, ...],
    reports: Reports,
    spares: Spares | None = None,
) -> int:
    """Run a check, print and write what came out; returns the exit code.

    Args:
        ref: The subject.
        options: Which scenarios to run.
        known: Failures that do not count.
        reports: What to write.
        spares: Has tasks of this machine that were started before.
    """
    with set_aside(reports.files.values()):
        verdict = _check(ref, options, known, reports, spares)
    json = reports.json
    is_wrong = verdict.status is Status.FAIL
    if json is not None and json != STDOUT and json.is_file() and is_wrong:
        _tell_next(verdict, json, beside=STDOUT in reports.files.values())
    return verdict.exit_code


def _check(
    ref: TargetRef,
    options: CheckOptions,
    known: tuple[Entry, ...],
    reports: Reports,
    spares: Spares | None,
) -> Verdict:
    """Check, and publish what came out, also where the check is ended early."""
    judged: list[Verdict] = []
    begun = datetime.datetime.now(datetime.timezone.utc)
    try:
        with make_progress(make_console(stderr=True)) as progress:
            verdict = check_target(ref, options, progress, spares, judged.append)
    except BadInputError:
        raise  # nothing that a check came to
    except BaseException as error:
        unplanned = replace(_end_early(ref, options, error), begun=begun)
        (verdict,) = judged or [unplanned]
        quarantined = _quarantine(verdict, known)
        # An error that left nothing judged is told by itself, with all its detail.
        is_shown = not isinstance(error, Exception) or any(
            run.status is not Status.ERROR for run in verdict.runs
        )
        try:
            # It may have the same cause, such as a full disk, and says less of it.
            for unwritten in _publish(quarantined, options, reports, is_shown=is_shown):
                say(str(unwritten))
        except OSError as unshown:
            say(str(unshown))
        raise
    quarantined = _quarantine(verdict, known)
    broken = _publish(quarantined, options, reports)
    if reports.tensorboard is not None:
        from distbench.summaries import write_summaries

        # By tasks of its own, which may fail: the verdict has been told by then.
        try:
            write_summaries(quarantined.verdict, options, reports.tensorboard)
        except ClusterError as unwritten:
            broken.append(unwritten)
    # Wrong numbers weigh more than a report.
    ends_here = bool(broken) and quarantined.verdict.status is not Status.FAIL
    for other in broken[ends_here:]:
        say(str(other))
    if ends_here:
        raise broken[0]
    return quarantined.verdict


def _quarantine(verdict: Verdict, known: tuple[Entry, ...]) -> Quarantined:
    today = datetime.date.today()
    return apply_quarantine(verdict, known, today, is_whole=False)


def _publish(
    quarantined: Quarantined,
    options: CheckOptions,
    reports: Reports,
    *,
    is_shown: bool = True,
) -> list[ClusterError]:
    """Write and print what came out, without the failures that are known.

    Returns:
        Why reports could not be written.
    """
    verdict = quarantined.verdict
    console = make_console(stderr=STDOUT in reports.files.values())
    try:
        # First of all: whoever reads what is printed may go away, as `| head` does.
        broken = _write(reports, verdict, options)
    finally:
        if is_shown:
            console.print(render_verdict(verdict, options), crop=False)
    for line in render_remarks(quarantined.remarks):
        console.print(line)
    return broken


def _end_early(ref: TargetRef, options: CheckOptions, error: BaseException) -> Verdict:
    """The verdict of a check that ended before it was known what to run."""
    runs = [
        Run(
            scenario=cluster,
            cluster=cluster,
            path=path,
            tier=tier,
            status=Status.ERROR,
            message=NOT_JUDGED + describe_end(error),
            detail=error.detail if isinstance(error, ClusterError) else "",
            setup={"target": ref.describe()},
        )
        for cluster in options.clusters
        for path in options.paths
        for tier in list_tiers(options)
    ]
    return Verdict(
        target=ref.describe(),
        runs=tuple(runs),
        environment=describe_bench(options.engine),
        options=describe_options(options),
    )


def _write(
    reports: Reports, verdict: Verdict, options: CheckOptions
) -> list[ClusterError]:
    """Write each report, whatever becomes of the others; returns why some are not."""
    broken: list[ClusterError] = []
    for name, file in reports.files.items():
        try:
            write_report(file, FORMS[name].write(verdict, options))
        except ClusterError as error:
            broken.append(error)
    return broken


def _tell_next(verdict: Verdict, json: Path, *, beside: bool) -> None:
    """Name the commands that can go on from a verdict; beside a report on stdout."""
    from distbench.cli.stops import pick_stop
    from distbench.repro.case import pick_case

    find: Callable[[Verdict], object]
    for what, find, words in (
        ("A script that shows it", pick_case, ["repro", str(json), "-o", "shown.py"]),
        ("A prompt at the value", pick_stop, ["debug", str(json)]),
    ):
        with suppress(BadInputError):  # that command would say no more than why not
            find(verdict)
            line = shlex.join(["distbench", *words])
            typer.echo(f"{what}: {escape_controls(line)}", err=beside)
