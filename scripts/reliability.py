"""Break tasks, benches and what is around them, and count what the bench made of it.

Each fault is injected several times in real runs on real clusters. Measured is how long
the run went on after it; noted is what was said, and what was left behind: processes,
files, shared memory, ports. As root on Linux, TMPDIR is a small disk of its own, which
a task may fill, shared memory that of the runs alone, and some runs get a network or a
hostname of their own.

    scripts/reliability --times 5        # docs/measured/reliability.json, anew
    scripts/reliability --only SIGKILL   # the faults that a regular expression finds
    scripts/reliability --add            # more runs, beside those that were kept
    scripts/reliability --add --only 'four suites'   # until there are a thousand
    scripts/reliability --add --only 'a thousand'
    scripts/reliability --page           # docs/reliability.md, from the figures
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

from leftovers import MARK, SHARED, look_before
from measured import (
    FOLDER,
    describe_installed,
    find_commit,
    gather_rows,
    read_rows,
    write_figures,
)
from reliability_bench import BENCHES, BenchCase, run_bench
from reliability_page import write_page
from reliability_runs import list_runs, merge_rows
from reliability_tasks import TASKS, Row, TaskCase, run_task_case

from distbench.errors import BadInputError

FIGURES = FOLDER / "reliability.json"
_DISK = "size=512m"
_LEFT_S = 10.0
"""How long what is left behind may take to go."""


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
    where = {"distbench": find_commit(), "place": describe_installed()}
    return {**row, **left_behind, **where}


def run_all(
    cases: Sequence[TaskCase | BenchCase], times: int, rows: Sequence[Row]
) -> Iterator[Row]:
    """Run what `list_runs` says."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if _is_apart():
            mount = ["mount", "-t", "tmpfs", "tmpfs"]
            subprocess.run([*mount, "-o", _DISK, name], check=True)
            subprocess.run([*mount, SHARED], check=True)
        os.environ["TMPDIR"] = name
        tempfile.tempdir = None
        for case in list_runs(cases, times, rows):
            yield run_case(case, folder)
        if _is_apart():
            subprocess.run(["umount", "-l", name, SHARED], check=True)


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
    parser.add_argument("--only", default="", metavar="REGEX")
    parser.add_argument("--add", action="store_true", help="keep the figures so far")
    parser.add_argument("--page", action="store_true", help="write the page alone")
    chosen = parser.parse_args()
    if chosen.page:
        write_page(FIGURES)
        return 0
    cases: list[TaskCase | BenchCase] = [*TASKS, *BENCHES]
    names = [case.name for case in cases]
    cases = [c for c in cases if re.search(chosen.only, c.name)]
    if not cases:
        listed = "\n  ".join(names)
        parser.error(f"--only: no case fits {chosen.only!r}. There are:\n  {listed}")
    _go_apart()
    os.environ[MARK] = uuid.uuid4().hex
    if not chosen.only:
        cases = [c for c in cases if not getattr(c, "counts", False)]
    if not _is_apart():
        cases = [c for c in cases if not getattr(c, "around", ())]
    before = read_rows(FIGURES)
    rows: list[Row] = [*before] if chosen.add else []
    is_right = True
    for row in run_all(cases, chosen.times, rows):
        rows.append(row)
        mark = "ok" if row["right"] and not row["left"] else "WRONG"
        print(f"{mark:5} {row['seconds']:6.2f} s  {row['case']}", flush=True)
        if mark == "WRONG":
            is_right = False
            print(f"      {row['status']}: {row['said']}\n      left: {row['left']}")
        write_figures(FIGURES, gather_rows(merge_rows(before, rows, names)))
        write_page(FIGURES)
    return int(not is_right)


if __name__ == "__main__":
    sys.exit(main())
