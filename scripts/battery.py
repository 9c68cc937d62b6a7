"""Check every stock optimizer on clusters; write docs/stock-optimizers.md.

Every public optimizer of the four families, as it is and with each of its options, is
checked like a user's own, on dense and on sparse gradients. What was checked before is
kept in docs/measured/stock.json and not run again, so that it can be done in parts.

    scripts/battery --minutes 30                       # goes on where it stopped
    scripts/battery --family keras3 --cluster mwms:2   # a part of it
    scripts/battery --only keras3/Adam/amsgrad --again # once more, with what was found
    scripts/battery --minutes 0                        # writes the page, runs nothing

Exit code 0: all that is no pass is explained in scripts/battery_known.py. 1: something
is not. 3: a cluster or the machine failed.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import fnmatch
import multiprocessing
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from battery_cases import CLUSTERS, DEFAULT, NAMESPACES, LeftOut, Stock, list_stock
from battery_known import KNOWN
from battery_page import Row, make_page
from checked import find_heaviest, list_findings
from known_rows import find_known
from measured import (
    FOLDER,
    ROOT,
    describe_installed,
    find_commit,
    find_done,
    keep_rows,
    name_row,
)

import distbench
from distbench.errors import BadInputError, ClusterError
from distbench.verdict import Run

WORKLOADS = ("linear", "embedding")
PATHS = ("default", "user")
NAMES = ("case", "cluster", "path", "workload")
"""What names a row."""
FIGURES = FOLDER / "stock.json"
PAGE = ROOT / "docs" / "stock-optimizers.md"
_LIST_S = 180.0
_UNEXPLAINED, _BROKEN = 1, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One check: a stock optimizer on a cluster, on all workloads."""

    case: Stock
    cluster: str
    path: str

    @property
    def keys(self) -> Iterator[tuple[str, ...]]:
        """Keys of the rows that it makes."""
        for workload in WORKLOADS:
            yield (self.case.id, self.cluster, self.path, workload)

    @property
    def stage(self) -> tuple[bool, ...]:
        """What tells most comes first: defaults, the collective strategies."""
        rare = self.cluster not in CLUSTERS[:2]
        return self.case.option != DEFAULT, rare, self.path != DEFAULT


def plan_work(cases: Sequence[Stock]) -> list[Work]:
    """All checks, in the order in which they are made."""
    found = [
        Work(case=case, cluster=cluster, path=path)
        for cluster in CLUSTERS
        for path in PATHS
        for case in cases
        if path in case.paths and DEFAULT in (path, case.option)
    ]
    return sorted(found, key=lambda work: work.stage)


def check_work(work: Work) -> list[Row]:
    """Make one check; returns a row for each workload."""
    start_s = time.monotonic()
    try:
        runs: Sequence[Run] = distbench.check(
            work.case, work.cluster, path=work.path
        ).runs
    except BadInputError as error:
        # It fails on one device already, and nothing is said about the cluster.
        words = {"status": "skipped", "message": str(error)}
        return [make_row(work, w, (), start_s, **words) for w in WORKLOADS]
    except ClusterError as error:
        words = {"status": "error", "message": str(error)}
        return [make_row(work, w, (), start_s, **words) for w in WORKLOADS]
    return [
        make_row(work, w, [r for r in runs if r.workload == w], start_s)
        for w in WORKLOADS
    ]


def make_row(
    work: Work, workload: str, runs: Sequence[Run], start_s: float, **words: str
) -> Row:
    """What is kept of a check on one workload: the heaviest of its tiers."""
    status, heaviest = find_heaviest(runs)
    row: Row = {
        "case": work.case.id,
        "cluster": work.cluster,
        "path": work.path,
        "workload": workload,
        "status": str(status),
        "tiers": {run.tier: str(run.status) for run in runs},
        "message": heaviest.message if heaviest else "",
        "findings": list_findings(heaviest),
        "distbench": find_commit(),
        "seconds": round((time.monotonic() - start_s) / len(WORKLOADS), 1),
    }
    return {**row, **words}


@dataclass(slots=True, kw_only=True)
class Battery:
    """What was listed."""

    cases: Sequence[Stock]
    left_out: Sequence[LeftOut]

    def run(self, todo: Sequence[Work], *, jobs: int, minutes: float) -> None:
        """Make checks until all are made or the time is over; keeps each at once."""
        start_s = time.monotonic()
        left, done = list(reversed(todo)), 0
        # Processes of their own, each with one fork server for all of its checks.
        context = multiprocessing.get_context("spawn")
        with concurrent.futures.ProcessPoolExecutor(jobs, context) as pool:
            running: dict[concurrent.futures.Future[list[Row]], Work] = {}
            while left or running:
                over = time.monotonic() - start_s > 60 * minutes
                if over:
                    left.clear()
                while left and len(running) < jobs:
                    work = left.pop()
                    running[pool.submit(check_work, work)] = work
                finished, _ = concurrent.futures.wait(
                    running, return_when=concurrent.futures.FIRST_COMPLETED
                )
                for future in finished:
                    del running[future]
                    done += 1
                    took_s = (time.monotonic() - start_s) / done
                    print(f"[{done}/{len(todo)}, {took_s:.1f} s each]", end=" ")
                    self._tell(future.result())

    def _tell(self, rows: Sequence[Row]) -> None:
        self.keep(rows)
        print(rows[0]["case"], rows[0]["cluster"], rows[0]["path"], end=": ")
        print("; ".join(describe_row(row) for row in rows), flush=True)

    def write(self) -> Sequence[Row]:
        """Write the page; returns all rows."""
        document = self.keep(())
        PAGE.write_text(make_page(self.cases, self.left_out, document), "utf-8")
        rows: Sequence[Row] = document["rows"]
        return rows

    def keep(self, rows: Sequence[Row]) -> Mapping[str, Any]:
        """Write rows to the figures; returns these."""
        order = [case.id for case in self.cases]
        return keep_rows(FIGURES, rows, describe_installed(), NAMES, order)


def describe_row(row: Row) -> str:
    """A row in the words of the progress."""
    words = [row["workload"], row["status"]]
    words += [f"{f['code']} ({f['origin']})" for f in row["findings"]]
    if row["status"] not in ("pass", "fail"):
        words.append(row["message"].partition("\n")[0][:160])
    if row["status"] == "fail" and find_known(row, KNOWN) is None:
        words.append("NOT EXPLAINED: " + row["findings"][0]["explanation"])
    return " ".join(words)


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--only", metavar="CASE", help="a pattern: keras3/Adam*/use_ema"
    )
    parser.add_argument("--family", action="append", choices=tuple(NAMESPACES))
    parser.add_argument("--cluster", action="append", choices=CLUSTERS)
    parser.add_argument("--path", action="append", choices=PATHS)
    parser.add_argument("--option", action="append", help="default, use_ema, …")
    parser.add_argument("--jobs", type=int, default=1, help="checks at the same time")
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--again", action="store_true", help="what was checked, too")
    return parser.parse_args(arguments)


def choose(work: Work, options: argparse.Namespace) -> bool:
    """Whether a check is asked for."""
    case = work.case
    return (
        (options.only is None or fnmatch.fnmatch(case.id, options.only))
        and (options.family is None or case.family in options.family)
        and (options.option is None or case.option in options.option)
        and (options.cluster is None or work.cluster in options.cluster)
        and (options.path is None or work.path in options.path)
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """List, check, write; returns the exit code."""
    options = parse_arguments(arguments)
    try:
        (found,) = distbench.run(list_stock, "one", timeout_s=_LIST_S).values()
    except ClusterError as error:
        print(f"battery: {error}", file=sys.stderr)
        return _BROKEN
    cases, left_out = found
    battery = Battery(cases=cases, left_out=left_out)
    chosen = [work for work in plan_work(cases) if choose(work, options)]
    if not chosen:
        print(
            f"battery: no case fits. There are {len(cases)}, such as {cases[0].id}.",
            file=sys.stderr,
        )
        return 2
    done = find_done(FIGURES, describe_installed(), NAMES)
    todo = [w for w in chosen if options.again or not done >= set(w.keys)]
    print(f"{len(chosen)} checks, {len(todo)} to be made", flush=True)
    battery.run(todo, jobs=options.jobs, minutes=options.minutes)
    rows = battery.write()
    if any(row["status"] == "error" for row in rows):
        return _BROKEN
    left = [row for row in rows if row["status"] != "pass"]
    unexplained = [row for row in left if find_known(row, KNOWN) is None]
    for row in unexplained:
        print(
            "not explained:", *name_row(row, NAMES), describe_row(row), file=sys.stderr
        )
    return _UNEXPLAINED if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
