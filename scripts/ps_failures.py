"""Measure what killing or stopping each kind of task does under parameter servers.

Each row is a cluster with steps in flight, one task of which gets a real SIGKILL or
SIGSTOP at a step; what TensorFlow does then, and what the bench says, is written down.

    .venv/bin/python scripts/ps_failures.py --json docs/measured/ps_failures.json
    .venv/bin/python scripts/ps_failures.py --page         # docs/ps-failures.md from it
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL, SIGSTOP
from typing import Any

import psutil
from measured import (
    FOLDER,
    ROOT,
    count_commits,
    describe_installed,
    describe_measured,
    find_commit,
    keep_rows,
    read_document,
    write_paragraph,
)

import distbench
from distbench.checking.checker import Checker
from distbench.cluster import Task
from distbench.launch.injury import Injury
from distbench.launch.rundir import RunDirectory
from distbench.observe import Launch
from distbench.options import CheckOptions
from distbench.target import parse_target
from distbench.verdict import Finding, Run, Status, Verdict

FIGURES = FOLDER / "ps_failures.json"
PAGE = ROOT / "docs" / "ps-failures.md"
PROGRAMS = Path(__file__).with_name("ps_failures_program.py")
_IN_FLIGHT = 8
_HELD, _SENT, _GOES_ON = 2, 4, 5
"""As in `ps_failures_program`, which only tasks can import."""
_DEADLINE_S = 60.0
_WORKER = Task(role="worker", index=0)
_SERVER = Task(role="ps", index=0)
_CHIEF = Task(role="chief", index=0)
_STACKS = re.compile(r"^Python stacks of (\S+):", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is done, and to which program.

    Attributes:
        what: In words.
        injury: What is done.
        program: Whose step waits where; see `ps_failures_program`.
        cluster: The cluster spec.
    """

    what: str
    injury: Injury
    program: str = "HeldAfterWriting"
    cluster: str = "ps:2+1"


CASES = {
    "before": Case(
        what="a worker is killed whose step has written nothing yet",
        injury=Injury(number=SIGKILL, step=_SENT, runs=_HELD),
        program="HeldBeforeWriting",
    ),
    "after": Case(
        what="a worker is killed whose step has written, and not ended",
        injury=Injury(number=SIGKILL, step=_SENT, runs=_HELD),
    ),
    "returns": Case(
        what="the same, and it returns at its address",
        injury=Injury(number=SIGKILL, step=_SENT, runs=_HELD, restarts=True),
    ),
    "only": Case(
        what="the only worker is killed",
        injury=Injury(number=SIGKILL, step=_HELD, task=_WORKER),
        program="NeverHeld",
        cluster="ps:1+1",
    ),
    "only-returns": Case(
        what="the only worker is killed, and returns",
        injury=Injury(number=SIGKILL, step=_HELD, task=_WORKER, restarts=True),
        program="NeverHeld",
        cluster="ps:1+1",
    ),
    "stopped": Case(
        what="a worker is stopped inside of its step",
        injury=Injury(number=SIGSTOP, step=_SENT, runs=_HELD),
    ),
    "continued": Case(
        what="the same, and it goes on while others take steps",
        injury=Injury(number=SIGSTOP, step=_SENT, runs=_HELD, until_step=_GOES_ON),
        program="HeldForAWhile",
    ),
    "server": Case(
        what="a parameter server is killed",
        injury=Injury(number=SIGKILL, step=_SENT, task=_SERVER),
    ),
    "server-returns": Case(
        what="a parameter server is killed, and returns, empty",
        injury=Injury(number=SIGKILL, step=_SENT, task=_SERVER, restarts=True),
    ),
    "server-stopped": Case(
        what="a parameter server is stopped",
        injury=Injury(number=SIGSTOP, step=_SENT, task=_SERVER),
    ),
    "chief": Case(
        what="the chief is killed",
        injury=Injury(number=SIGKILL, step=_SENT, task=_CHIEF),
    ),
    "chief-stopped": Case(
        what="the chief is stopped",
        injury=Injury(number=SIGSTOP, step=_SENT, task=_CHIEF),
    ),
}
RESTORED = "restored"
NAMES = [*CASES, RESTORED]


def check_hurt(case: Case, timeout_s: float = _DEADLINE_S) -> Verdict:
    """The verdict on a program of which a task is hurt."""
    options = CheckOptions(
        clusters=(case.cluster,),
        tiers=("exact",),
        steps=2,
        in_flight=_IN_FLIGHT,
        timeout_s=timeout_s,
    )
    with RunDirectory() as directory:
        launch = Launch(directory=directory, injury=case.injury)
        target = parse_target(f"{PROGRAMS}:{case.program}")
        return Checker(target, options, launch).run()


def measure(name: str) -> dict[str, Any]:
    """One row."""
    case = CASES[name]
    begin = time.perf_counter()
    verdict = check_hurt(case)
    (run,) = verdict.runs
    return {
        "name": name,
        "what": case.what,
        "cluster": case.cluster,
        "tensorflow": describe_framework(run),
        "status": str(run.status),
        "says": describe_findings(run),
        "seconds": round(time.perf_counter() - begin, 1),
        "alive": _STACKS.findall(run.detail),
        "left": len(list_tasks()),
        "distbench": find_commit(),
    }


def measure_restored() -> dict[str, Any]:
    """The row of a job that is started anew from its checkpoint."""
    begin = time.perf_counter()
    verdict = distbench.check(
        "tf_keras.optimizers.legacy:Adam",
        "ps:2+1",
        workload="linear",
        tier="bounded",
        restore_from="ps:2+1",
        timeout_s=_DEADLINE_S,
    )
    (run,) = verdict.runs
    return {
        "name": RESTORED,
        "what": "the job is started anew, from a checkpoint",
        "cluster": "ps:2+1",
        "tensorflow": "trains on",
        "status": str(run.status),
        "says": describe_findings(run),
        "seconds": round(time.perf_counter() - begin, 1),
        "alive": [],
        "left": len(list_tasks()),
        "distbench": find_commit(),
    }


def describe_framework(run: Run) -> str:
    """What TensorFlow did, as far as the bench saw it."""
    if raised := re.search(r"Task chief-0 \S+ \S+ raised (\w+)", run.message):
        return f"`join` raises {raised[1]}"
    if "passed its deadline" in run.message:
        return "still waits at the deadline"
    if "could not be reached any more by chief-0" in run.message:
        return "`join` raises that the server is lost"
    if "was stopped by a signal" in run.message:
        return "waits for it"
    if "Task chief-0" in run.message:
        return "the others serve on"
    again = re.search(r"(steps? [0-9, and]+) had to be run again", run.message)
    return f"{again[1]} ran again" if again else "waits, and goes on"


def describe_findings(run: Run) -> str:
    """Codes and what they name, or how it ended without one."""
    if run.status is Status.ERROR:
        return "at its deadline" if "passed its deadline" in run.message else "at once"
    return "; ".join(_name_steps(finding) for finding in run.findings)


def _name_steps(finding: Finding) -> str:
    found = re.search(r"updates of (steps? [0-9, and]*[0-9])", finding.explanation)
    return f"{finding.code} of {found[1]}" if found else finding.code


def list_tasks() -> list[int]:
    """Processes of tasks that live on: what fork servers have started."""
    return [
        task.pid
        for server in psutil.Process().children()
        for task in server.children(recursive=True)
        if task.status() != psutil.STATUS_ZOMBIE
    ]


def make_page(document: Mapping[str, Any]) -> str:
    """The page that shows the rows."""
    rows = document["rows"]
    lines = [
        "<!-- Written by scripts/ps_failures.py from docs/measured. -->",
        "",
        "# What killing each kind of task does",
        "",
        *write_paragraph(
            f"Steps in flight, {_IN_FLIGHT} at a time, of which "
            f"step {_HELD} waits inside of its function; a task gets a real SIGKILL or "
            f"SIGSTOP with step {_SENT}. Without it the bench takes a task that dies "
            "or is stopped for the cause of an error, ends the others and names it; "
            "here it lets TensorFlow go on without the dead, for "
            f"{_DEADLINE_S:g} seconds at most. `fail` is a wrong "
            "number, `error` never blames the program."
        ),
        *describe_measured(document),
        *write_paragraph(f"{len(rows)} rows: {count_commits(rows)}."),
        "| what is done | cluster | TensorFlow | distbench | seconds "
        "| alive when it ended | left behind |",
        "|---|---|---|---|---:|---|---:|",
    ]
    for row in rows:
        says = f"{row['status']}: {row['says']}" if row["says"] else row["status"]
        lines.append(
            f"| {row['what']} | {row['cluster']} | {row['tensorflow']} | {says} "
            f"| {row['seconds']:.0f} | {', '.join(row['alive']) or '-'} "
            f"| {row['left']} |"
        )
    lines += [
        "",
        *write_paragraph(
            "What `ClusterCoordinator.schedule` takes is run at least once. A worker "
            "that is lost has its step run again, by another one or by itself when it "
            "is back, and nothing tells whether the step had written: if it had, the "
            "update is in the variables twice, and the bench names the step. A worker "
            "that is stopped is not lost: its step is waited for without a deadline. "
            "With a parameter server its variables are gone: the chief gets an error "
            "from `join`, also if the server returns, and TensorFlow wants the job "
            "started anew from its last checkpoint (the last row). The chief is not "
            "watched by anybody: workers and parameter servers serve on until they are "
            "ended."
        ),
    ]
    return "\n".join(lines).rstrip() + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and write what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--page", action="store_true")
    given = parser.parse_args(arguments)
    if given.page:
        PAGE.write_text(make_page(read_document(FIGURES)), "utf-8")
        return
    for name in given.only:
        row = measure_restored() if name == RESTORED else measure(name)
        print(json.dumps(row), flush=True)
        if given.json is not None:
            keep_rows(given.json, [row], describe_installed(), ("name",), NAMES)


if __name__ == "__main__":
    main()
