"""One job of a night: a process with a deadline, and the verdict that it leaves."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from nightly_plan import Job

from distbench.errors import NOT_JUDGED, BadInputError
from distbench.launch.bootstrap import die_with_parent
from distbench.verdict import Run, Status, Verdict, merge_verdicts
from distbench.verdict.document import verdict_from_json

_LOOK_S = 0.2
_ENDED_IN_ORDER = {"tests": (0, 1, 5), "check": (0, 1, 3, 4)}
"""Exit codes with which pytest, or a check, has written all that there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When a job has to end.

    Attributes:
        seconds: Its own deadline.
        is_over: Whether the night is over.
        grace_s: How long it may take to write what it has, once it is asked to end.
    """

    seconds: float
    is_over: Callable[[], bool]
    grace_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What became of a job.

    Attributes:
        verdict: What it wrote, and a run in error if that cannot be all.
        is_cut: Whether the night ended before it did.
    """

    verdict: Verdict
    is_cut: bool = False


def run_job(job: Job, folder: Path, root: Path, limits: Limits) -> Done:
    """Run a job to its end, or to its deadline.

    Args:
        job: What to run.
        folder: Where its log and its verdict go.
        root: The folder in which it runs.
        limits: When it has to end.
    """
    place, log = folder / f"{job.name}.json", folder / f"{job.name}.log"
    begin_s = time.monotonic()
    try:
        with log.open("wb") as output:
            process = subprocess.Popen(
                job.make_command(place),
                cwd=root,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                # Nobody else knows its deadline. Nothing else runs in the fork.
                preexec_fn=partial(die_with_parent, os.getpid(), signal.SIGTERM),
            )
            ending = _wait(process, begin_s + limits.seconds, limits)
    except OSError as error:
        return Done(verdict=_make_broken(job, f"could not be run: {error}", 0.0))
    seconds = time.monotonic() - begin_s
    written, problem = _read(place)
    # A verdict is true if it passed: whether there is one is asked by its name.
    if written is None:
        written = Verdict(target=job.name, runs=())
    if ending == "over":
        # What the night leaves out is no error of anything.
        judged = [r for r in written.runs if not r.message.startswith(NOT_JUDGED)]
        return Done(verdict=replace(written, runs=tuple(judged)), is_cut=True)
    if ending == "late":
        problem = f"did not end within {limits.seconds:.0f} s"
    elif process.returncode not in _ENDED_IN_ORDER[job.kind]:
        problem = f"ended with code {process.returncode}: {_find_last_line(log)}"
    if problem:
        broken = _make_broken(job, f"{problem} (see {log})", seconds)
        written = merge_verdicts([written, broken])
    return Done(verdict=written)


def _wait(process: subprocess.Popen[bytes], until_s: float, limits: Limits) -> str:
    """Wait for a process: `ended` by itself, or made to: `late`, or `over`."""
    while process.poll() is None:
        if limits.is_over():
            _end(process, limits.grace_s)
            return "over"
        if time.monotonic() >= until_s:
            _end(process, limits.grace_s)
            return "late"
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_LOOK_S)
    return "ended"


def _end(process: subprocess.Popen[bytes], grace_s: float) -> None:
    """Have it write what it has, as after Ctrl-C; then end all that it started."""
    process.send_signal(signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(grace_s)
    # The group lives on with any child that does not heed the signal. macOS permits
    # nothing where all of it has ended.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _read(place: Path) -> tuple[Verdict | None, str]:
    """The verdict that a job wrote, or why there is none."""
    try:
        return verdict_from_json(place.read_text("utf-8")), ""
    except FileNotFoundError:
        return None, "left no verdict"
    except (OSError, UnicodeDecodeError, BadInputError) as error:
        return None, f"left no verdict that can be read: {error}"


def _make_broken(job: Job, problem: str, seconds: float) -> Verdict:
    """A verdict that says that a job came to no end of its own."""
    run = Run(
        scenario=job.name,
        cluster="",
        path="",
        tier="",
        status=Status.ERROR,
        seconds=seconds,
        message=f"The job {problem}",
        setup={"target": "nightly"},
    )
    return Verdict(target=job.name, runs=(run,))


def _find_last_line(log: Path) -> str:
    lines = log.read_text("utf-8", errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "no output")
