"""What the command line asks of a night: its jobs, and when it has to be over."""

from __future__ import annotations

import argparse
import datetime
import math
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from measured import ROOT
from nightly_plan import Job, plan_clusters, plan_jobs
from own_optimizers import OWN

from distbench.cluster import ClusterSpec
from distbench.engine_names import ENGINES
from distbench.errors import BadInputError
from distbench.history.limits import Limits
from distbench.history.pattern import fits
from distbench.machine import Machine, inspect_machine
from distbench.target import parse_target

_MOST = 10_000
"""Of anything: no night lasts for a year."""


def parse_arguments(
    arguments: Sequence[str] | None, description: str
) -> argparse.Namespace:
    """The options of the command line.

    Args:
        arguments: The words; None takes those of the process.
        description: What `--help` says of the script.
    """
    parser = argparse.ArgumentParser(prog="scripts/nightly", description=description)
    parser.add_argument(
        "--optimizer",
        action="append",
        metavar="TARGET",
        help="check this optimizer factory in every variant, in place of those of "
        "scenarios/optimizers; may be repeated",
    )
    parser.add_argument(
        "--program",
        action="append",
        default=[],
        metavar="TARGET",
        help="check this train program or model too; may be repeated",
    )
    parser.add_argument(
        "--only",
        action="append",
        metavar="PATTERN",
        help="jobs to run, see --list; may be repeated",
    )
    end = parser.add_mutually_exclusive_group()
    end.add_argument("--until", type=_parse_clock, metavar="HH:MM", help="be over then")
    end.add_argument(
        "--hours",
        type=partial(_parse_number, float, 0),
        metavar="H",
        help="be over after so long",
    )
    parser.add_argument(
        "--job-minutes",
        type=partial(_parse_number, float, 0),
        default=30.0,
        help="deadline of each job",
    )
    parser.add_argument(
        "--jobs",
        type=partial(_parse_number, int, 1),
        default=os.environ.get("DISTBENCH_JOBS", "1"),
        help="tests, or scenarios of a check, at the same time; times vary more with "
        "several; default: DISTBENCH_JOBS or 1",
    )
    parser.add_argument(
        "--engine", choices=ENGINES, default="local", help="who starts the processes"
    )
    parser.add_argument(
        "-c",
        "--cluster",
        action="append",
        metavar="SPEC",
        help="check on this cluster, in place of those that fit the machine; may be "
        "repeated",
    )
    parser.add_argument(
        "--require-gpus",
        type=partial(_parse_number, int, 0),
        default=0,
        metavar="N",
        help="what lacks GPUs is an error, never skipped; plan for N",
    )
    parser.add_argument(
        "--quarantine",
        type=Path,
        metavar="FILE",
        help="known failures, which are shown and do not count",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=ROOT / "nights",
        metavar="DIR",
        help="folder of the nights, each a folder in it; default: nights",
    )
    parser.add_argument(
        "--history", type=Path, metavar="FILE", help="default: DIR/history.sqlite"
    )
    parser.add_argument(
        "--window",
        type=int,
        default=Limits().window,
        metavar="N",
        help="nights to look at for what drifts; default: %(default)s",
    )
    parser.add_argument("--list", action="store_true", help="say what would be run")
    options = parser.parse_args(arguments)
    options.out = options.out.resolve()
    options.history = options.history or options.out / "history.sqlite"
    return options


def choose_jobs(options: argparse.Namespace) -> tuple[Job, ...]:
    """The jobs that are asked for.

    Raises:
        BadInputError: None is, or a target cannot be.
    """
    optimizers = options.optimizer or OWN
    for target in (*optimizers, *options.program):
        parse_target(target, ROOT)
    if options.engine == "local":
        machine = inspect_machine()
    else:  # what its nodes have is known when it gives them
        machine = Machine(cores=2, memory_bytes=0, gpus=0)
    for spec in options.cluster or ():
        ClusterSpec.parse(spec)
    jobs = plan_jobs(
        options.cluster or plan_clusters(machine, options.require_gpus),
        [path.relative_to(ROOT) for path in sorted(ROOT.glob("scenarios/test_*.py"))],
        optimizers,
        options.program,
        require_gpus=options.require_gpus,
        workers=options.jobs,
        engine=options.engine,
    )
    wanted = options.only or ["*"]
    chosen = tuple(j for j in jobs if any(fits(only, j.name) for only in wanted))
    if not chosen:
        names = " or ".join(map(repr, wanted))
        raise BadInputError(
            f"No job fits {names}. There are {len(jobs)}, such as {jobs[0].name} and "
            f"{jobs[-1].name}; --list names them."
        )
    return chosen


def is_whole(options: argparse.Namespace) -> bool:
    """Whether all jobs are asked for that a night has by itself."""
    replaced = options.optimizer or options.cluster or options.engine != "local"
    return not replaced and "*" in (options.only or "*")


def find_end(
    options: argparse.Namespace, now: datetime.datetime
) -> datetime.datetime | None:
    """When the night has to be over: the next time that a clock shows HH:MM."""
    if options.hours is not None:
        return now + datetime.timedelta(hours=options.hours)
    if options.until is None:
        return None
    # In the words of the clock: what it is ahead of UTC may change in between.
    today = now.astimezone().date()
    days = (today, today + datetime.timedelta(days=1))
    # What the clock shows twice comes first as 0, then as 1.
    ends = (
        datetime.datetime.combine(day, options.until.replace(fold=fold)).astimezone()
        for day in days
        for fold in (0, 1)
    )
    return next(end for end in ends if end > now)


def _parse_number(kind: Callable[[str], float], least: int, text: str) -> float:
    """A number from `least` to `_MOST`."""
    try:
        value = kind(text)
    except ValueError:
        value = math.nan
    if not least <= value <= _MOST:
        word = "whole number" if kind is int else "number"
        raise argparse.ArgumentTypeError(
            f"expected a {word} from {least} to {_MOST}. Received: {text!r}."
        )
    return value


def _parse_clock(text: str) -> datetime.time:
    return datetime.datetime.strptime(text, "%H:%M").time()
