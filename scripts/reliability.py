"""Break tasks, benches and what is around them, and count what the bench made of it.

Each fault is injected several times in real runs on real clusters. Measured is how long
the run went on after it; noted is what was said, and what was left behind: processes,
files, shared memory, ports. As root on Linux, TMPDIR is a small disk of its own, which
a task may fill, and some runs get a network or a hostname of their own.

    scripts/reliability --times 5        # docs/measured/reliability.json, anew
    scripts/reliability --only SIGKILL   # the faults whose names match, anew
    scripts/reliability --add            # more runs, beside those that were kept
    scripts/reliability --add --only 'four suites'   # until there are a thousand
    scripts/reliability --add --only 'a thousand'
    scripts/reliability --page           # docs/reliability.md, from the figures
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leftovers import MARK, look_before
from measured import FOLDER, ROOT, describe_place, find_commit, write_figures
from reliability_bench import BENCHES, BenchCase, run_bench
from reliability_page import write_page
from reliability_program import MEMORY_BYTES, Program
from reliability_runs import list_runs, merge_rows

from distbench.checking.controls import Controls
from distbench.checking.failing import Failing
from distbench.checking.plan import Planned
from distbench.cluster import ClusterSpec
from distbench.errors import BadInputError
from distbench.escape import escape_controls
from distbench.evidence import Tier
from distbench.launch.rundir import RunDirectory
from distbench.observe import Launch, observe
from distbench.scenario import Scenario
from distbench.target import write_pickled_target

FIGURES = FOLDER / "reliability.json"
TIERS: tuple[Tier, ...] = ("bounded",)
SPEC = ClusterSpec.parse("mwms:3@cpu")
_DISK = "size=512m"
LIMIT_S = 60.0
"""Deadline of runs that a fault has to end long before."""
_STALL_S = 25.0
"""Deadline of runs that reach it: a busy machine takes half of it to get there."""
_LEFT_S = 10.0
"""How long what is left behind may take to go."""

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCase:
    """A worker that goes wrong in the second step.

    Attributes:
        injury: Its name in `reliability_program`.
        how: How it is done.
        said: Pattern that what is said has to match.
        status: What the run has to end with.
        at_deadline: Whether nothing but the deadline can tell.
        memory_gib: The limit of each task.
        within_s: How long after the event the run may end; 0 where any time will do.
        enough: It counts nothing.
    """

    injury: str
    how: str
    said: str
    status: str = "error"
    at_deadline: bool = False
    memory_gib: float | None = None
    within_s: float = 0.0
    enough: int = 0

    @property
    def name(self) -> str:
        """What the table calls it."""
        return f"a task {self.injury}" if self.injury else "nothing happens"


_FIRST = r"Task worker-1 of 'mwms:3@cpu' "
_PLACE = r".* last at step 1, phase bounded, collective \d+, all_reduce of "
TASKS = (
    TaskCase(injury="", how="–", said="", status="pass"),
    TaskCase(
        injury="raises",
        how="`raise ValueError`",
        said=r"Step 1, .*worker-1 .*raised ValueError: injured, at .*program\.py:\d+",
        status="fail",
    ),
    TaskCase(
        injury="leaves by os._exit",
        how="`os._exit(3)`",
        said=_FIRST + "ended with exit code 3" + _PLACE,
    ),
    TaskCase(
        injury="is killed (SIGKILL)",
        how="`kill -KILL`, as Linux does where memory runs out; ended within 2 s",
        said=_FIRST + "was killed by SIGKILL" + _PLACE,
        within_s=2.0,
    ),
    TaskCase(
        injury="is asked to end (SIGTERM)",
        how="`kill -TERM`; TensorFlow takes it for a notice and goes on",
        said="",
        status="pass",
    ),
    TaskCase(
        injury="is called from elsewhere",
        how="`connect` to the ports of all tasks at 127.0.0.99, where servers of every "
        "interface answer; it has to be refused",
        said="",
        status="pass",
    ),
    TaskCase(
        injury="crashes (SIGSEGV)",
        how="reads address 0",
        said=_FIRST + "was killed by SIGSEGV" + _PLACE,
    ),
    TaskCase(
        injury="is stopped (SIGSTOP)",
        how="`kill -STOP`",
        said=_FIRST + "was stopped by a signal" + _PLACE,
    ),
    TaskCase(
        injury="waits for ever",
        how="waits for a lock that nobody gives back",
        said=r"passed its deadline.*from: worker-1 \(step 1.*worker-0, worker-2 only",
        at_deadline=True,
    ),
    TaskCase(
        injury="takes memory without end",
        how="16 MiB after 16 MiB; the seconds begin with what passes the limit of 512 "
        "MiB for each task; ended within 2 s",
        said=_FIRST + r"took \d+ MiB of memory, and 512 MiB a task may take",
        memory_gib=MEMORY_BYTES / 2**30,
        within_s=2.0,
    ),
    TaskCase(
        injury="asks for 2 PiB at once",
        how="`tf.ones([2**23, 2**10, 2**8])`; TensorFlow tries for ten seconds first",
        said=r"worker-1 .*ResourceExhaustedError.*OOM when allocating tensor",
        status="fail",
    ),
    TaskCase(
        injury="fills its disk",
        how="writes to a temporary file without end, on a disk of 512 MB",
        said=r"worker-1 .*OSError: .*No space left on device",
        status="fail",
    ),
    TaskCase(
        injury="prints 2 GB",
        how="`print`, then `raise ValueError`, on a disk of 512 MB",
        said=r"worker-1 .*raised ValueError: after the flood",
        status="fail",
    ),
    TaskCase(
        injury="prints a fake result and raises",
        how="a `finished` event and a verdict on stdout, control characters in both",
        said=r"worker-1 .*raised ValueError: \\x1b\[2J",
        status="fail",
    ),
    TaskCase(
        injury="closes its descriptors and waits",
        how="`os.closerange(3, 4096)`",
        said=r"worker-1 .*(could not be reached|closed its channel)",
    ),
    TaskCase(
        injury="closes its descriptors and raises",
        how="`os.closerange(0, 4096)`",
        said=_FIRST + "closed descriptors that are not its own",
    ),
    TaskCase(
        injury="forks and exits",
        how="`os.fork()`, and the child sleeps for ten minutes",
        said=_FIRST + "ended with exit code 5" + _PLACE,
    ),
    TaskCase(
        injury="forks, and both go on",
        how="`os.fork()`, and the child goes on as if it were the task",
        said="",
        status="pass",
    ),
    TaskCase(
        injury="leaves shared memory and is killed",
        how="`SharedMemory(create=True)`, then `kill -KILL`",
        said=_FIRST + "was killed by SIGKILL" + _PLACE,
    ),
    TaskCase(
        injury="leaves a daemon and exits",
        how="a child in a session of its own that sleeps for ten minutes",
        said=_FIRST + "ended with exit code 6" + _PLACE,
    ),
    TaskCase(
        injury="skips a sum",
        how="one `all_reduce` less than the others in a step",
        said=r"worker-0 waits in collective \d+, all_reduce of '.*worker-1 waits in",
        status="fail",
    ),
    TaskCase(
        injury="sums in another order",
        how="two `all_reduce` the other way round",
        said=r"worker-0 waits in collective \d+, .*\[6\].*worker-1 waits .*\[2\]",
        status="fail",
    ),
    TaskCase(
        injury="sums another shape",
        how="an `all_reduce` of twice the rows",
        said=r"worker-0 waits in collective \d+, .*\[6\].*worker-1 waits .*\[12\]",
        status="fail",
    ),
)


def run_task_case(case: TaskCase, folder: Path, stall_s: float = _STALL_S) -> Row:
    """Run a case once: what was said, and how long after the injury the run ended.

    Args:
        case: What is broken.
        folder: Where the injured task tells the time.
        stall_s: The deadline where the run ends by it. On a busy machine it may pass
            before the task is injured: then the case is run again with twice that.
    """
    told = folder / "told"
    told.unlink(missing_ok=True)
    timeout_s = stall_s if case.at_deadline else LIMIT_S
    begin = time.monotonic()
    with RunDirectory() as directory:
        program = Program(case.injury, told=str(told))
        target = write_pickled_target(program, directory.path)
        scenario = Scenario(
            target=target.describe(), cluster=str(SPEC), timeout_s=timeout_s
        )
        launch = Launch(directory=directory, memory_gib=case.memory_gib)
        seen = observe(target, scenario, SPEC, TIERS, launch, None)
        end = time.monotonic()
        status, said = "pass", ""
        if seen.failure is not None:
            failing = Failing(TIERS, Controls(launch, TIERS))
            planned = Planned(scenario=scenario, spec=SPEC, optional=False)
            (run,) = failing.judge(planned, seen, seen.failure)
            status = str(run.status)
            said = run.message or run.findings[0].explanation
    if case.at_deadline and not told.exists() and stall_s < LIMIT_S:
        return run_task_case(case, folder, 2 * stall_s)
    event = float(told.read_text()) if told.exists() else begin
    told.unlink(missing_ok=True)
    if case.at_deadline:
        event = begin + timeout_s
    in_time = end - event <= (case.within_s or math.inf)
    return {
        "case": case.name,
        "how": case.how,
        "kind": "deadline" if case.at_deadline else "event" if case.injury else "",
        "status": status,
        "said": escape_controls(said.replace(str(ROOT), ""))[:600],
        "right": status == case.status
        and in_time
        and bool(re.search(case.said, escape_controls(said), re.DOTALL)),
        "seconds": round(end - event, 2),
    }


def run_case(case: TaskCase | BenchCase, folder: Path) -> Row:
    """Run a case once, and look for what it left behind."""
    # Tasks show the environment that the fork server was started with, once for all.
    mark = uuid.uuid4().hex if isinstance(case, BenchCase) else os.environ[MARK]
    before = look_before(mark, folder)
    try:
        if isinstance(case, TaskCase):
            row = run_task_case(case, folder)
        else:
            row = run_bench(case, folder, mark)
    except BadInputError as error:
        row = {"case": case.name, "how": case.how, "kind": "", "status": "input"}
        row |= {"said": str(error), "right": False, "seconds": 0.0}
    left, gone_s = before.find_leftovers(_LEFT_S)
    left_behind = {"left": str(left), "gone_s": round(gone_s, 2)}
    return {**row, **left_behind, "distbench": find_commit()}


def run_all(
    cases: Sequence[TaskCase | BenchCase], times: int, rows: Sequence[Row]
) -> Iterator[Row]:
    """Run what `list_runs` says."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if _is_apart():
            mount = ["mount", "-t", "tmpfs", "-o", _DISK, "tmpfs", name]
            subprocess.run(mount, check=True)
        os.environ["TMPDIR"] = name
        tempfile.tempdir = None
        for case in list_runs(cases, times, rows):
            yield run_case(case, folder)
        if _is_apart():
            subprocess.run(["umount", "-l", name], check=True)


def _is_apart() -> bool:
    return "DISTBENCH_APART" in os.environ


def _go_apart() -> None:
    """As root, go on in a mount namespace: what is mounted there goes with us."""
    if sys.platform == "linux" and os.geteuid() == 0 and not _is_apart():
        os.environ["DISTBENCH_APART"] = "1"
        command = ["unshare", "--mount", sys.executable, *sys.argv]
        os.execvp(command[0], command)


def main() -> int:
    """Run what was asked for; 1 if a run went otherwise than it has to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--add", action="store_true", help="keep the figures so far")
    parser.add_argument("--page", action="store_true", help="write the page alone")
    chosen = parser.parse_args()
    if chosen.page:
        write_page(FIGURES)
        return 0
    _go_apart()
    os.environ[MARK] = uuid.uuid4().hex
    cases: list[TaskCase | BenchCase] = [*TASKS, *BENCHES]
    cases = [c for c in cases if re.search(chosen.only, c.name)]
    if not chosen.only:
        cases = [c for c in cases if not getattr(c, "counts", False)]
    if not _is_apart():
        cases = [c for c in cases if not getattr(c, "around", ())]
    before: list[Row] = []
    if FIGURES.exists():
        before = json.loads(FIGURES.read_text(encoding="utf-8"))["rows"]
    rows: list[Row] = [*before] if chosen.add else []
    names = [case.name for case in (*TASKS, *BENCHES)]
    for row in run_all(cases, chosen.times, rows):
        rows.append(row)
        mark = "ok" if row["right"] and not row["left"] else "WRONG"
        print(f"{mark:5} {row['seconds']:6.2f} s  {row['case']}", flush=True)
        if mark == "WRONG":
            print(f"      {row['status']}: {row['said']}\n      left: {row['left']}")
        kept = merge_rows(before, rows, names)
        # Some may be those of another day.
        commits = ", ".join(dict.fromkeys(row["distbench"] for row in kept))
        place = {**describe_place(), "distbench": commits}
        write_figures(FIGURES, {"place": place, "rows": kept})
        write_page(FIGURES)
    return int(any(not row["right"] or row["left"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
