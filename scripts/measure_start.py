"""Measure how long fresh tasks take to start: forked from a server, and spawned.

A start ends when every task has answered a job, with the modules imported. The fork
server itself starts once for a whole test session; its time is given by itself.

    python scripts/measure_start.py --tasks 1 2 4 --runs 5 --json start.json
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from distbench.cluster import ClusterSpec
from distbench.launch.channel import TaskChannel
from distbench.launch.engine import Request
from distbench.launch.local import LocalEngine
from distbench.launch.rundir import RunDirectory
from distbench.launch.servers import get_fork_server
from distbench.launch.start import start_group
from distbench.launch.surroundings import Start
from distbench.launch.task import TaskContext, serve

_ENVIRONMENT = {"TF_CPP_MIN_LOG_LEVEL": "2"}
_TIMEOUT_S = 600.0


def run_task(channel: TaskChannel, context: TaskContext) -> None:  # noqa: ARG001 - entry
    """Entry of the tasks: answers, and does nothing."""
    serve(channel, {"answer": lambda _: {}})


def measure_start(
    tasks: int, start: Start, preload: tuple[str, ...], directory: RunDirectory
) -> float:
    """Seconds from the request until all tasks have answered."""
    begin = time.perf_counter()
    request = Request(
        spec=ClusterSpec.parse(f"mwms:{tasks}"),
        directory=directory,
        entry=f"{Path(__file__).stem}:run_task",
        preload=preload,
        environment=_ENVIRONMENT,
        start=start,
    )
    with start_group(request, LocalEngine()) as group:
        group.call("answer", {}, deadline=_TIMEOUT_S)
        return time.perf_counter() - begin


def measure_all(
    counts: Sequence[int], runs: int, preload: tuple[str, ...]
) -> dict[str, Any]:
    """Medians over several runs, the two starts in turn so that both see one load."""
    begin = time.perf_counter()
    get_fork_server(preload, _ENVIRONMENT).wait_ready()
    report: dict[str, Any] = {
        "preload": preload,
        "runs": runs,
        "server_s": time.perf_counter() - begin,
        "starts": [],
    }
    with RunDirectory() as directory:
        for tasks in counts:
            times: dict[Start, list[float]] = {"fork": [], "spawn": []}
            for _ in range(runs):
                for start, taken in times.items():
                    taken.append(measure_start(tasks, start, preload, directory))
            fork_s, spawn_s = (statistics.median(taken) for taken in times.values())
            report["starts"].append(
                {
                    "tasks": tasks,
                    "fork_s": fork_s,
                    "spawn_s": spawn_s,
                    "ratio": spawn_s / fork_s,
                }
            )
    return report


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table, and write it as JSON where asked to."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tasks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--preload", nargs="*", default=["tensorflow"])
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    report = measure_all(options.tasks, options.runs, tuple(options.preload))
    print(f"fork server with {options.preload}: {report['server_s']:.2f} s, once")
    print("tasks   fork [s]   spawn [s]   spawn / fork")
    for row in report["starts"]:
        print(
            "{tasks:5}   {fork_s:8.3f}   {spawn_s:9.2f}   {ratio:12.0f}".format(**row)
        )
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    # Tasks import this file by its name.
    sys.path.insert(0, str(Path(__file__).parent))
    main()
