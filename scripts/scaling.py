"""Measure what a scenario costs on more and more workers, and what would run out first.

On each number of workers three steps of one variable run by `distbench.run`, which
tells what a task holds, and then a whole check. What grows with the number of workers
is fitted, and told for numbers that one machine has no room for.

    scripts/scaling                     # 2 to 64 workers, docs/scaling.md
    scripts/scaling --workers 2 4 8
    scripts/scaling --page              # the page from the figures alone
"""

from __future__ import annotations

import argparse
import json
import resource
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from benchmark_program import measure_memory
from measure_check import SUBJECT, WORKLOAD
from measured import FOLDER, ROOT, describe_place, write_figures
from processor import measure_processor
from scaling_page import make_page

import distbench

FIGURES = FOLDER / "scaling.json"
PAGE = ROOT / "docs" / "scaling.md"
_WORKERS = (2, 4, 8, 16, 32, 64)
_TIMEOUT_S = 900.0
_MIB = 1 << 20
_LOOK_S = 0.02


def hold() -> dict[str, float]:
    """Runs in a task: what it holds after three steps."""
    import psutil

    private, _ = measure_memory()
    process = psutil.Process()
    found = process.net_connections(kind="tcp")
    return {
        "private_mib": private / (1 << 20),
        "threads": process.num_threads(),
        "files": process.num_fds(),
        "listening": sum(one.status == psutil.CONN_LISTEN for one in found),
        "connections": sum(one.status == psutil.CONN_ESTABLISHED for one in found),
    }


def measure(workers: int) -> dict[str, Any]:
    """One row: what a task holds, on average, and what run and check cost."""
    spec = f"mwms:{workers}"
    with _watch_files() as files:
        begin = time.perf_counter()
        held = distbench.run(hold, spec, timeout_s=_TIMEOUT_S).values()
        run_s = time.perf_counter() - begin
    begin, cpu_s = time.perf_counter(), measure_processor()
    verdict = distbench.check(
        SUBJECT, spec, workload=WORKLOAD, tier="bounded", timeout_s=_TIMEOUT_S
    )
    check_s = time.perf_counter() - begin
    verdict.raise_for_status()
    means = {
        name: round(sum(one[name] for one in held) / workers, 2)
        for name in next(iter(held))
    }
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "workers": workers,
        **means,
        "bench_files": files[-1],
        "run_s": round(run_s, 2),
        "check_s": round(check_s, 2),
        "check_cpu_s": round(measure_processor() - cpu_s, 2),
        "checked": verdict.runs[0].checked,
        "bench_mib": round(peak / 1024, 1),
    }


@contextmanager
def _watch_files() -> Iterator[list[int]]:
    """The most descriptors that this process has open at a time."""
    process = psutil.Process()
    most = [process.num_fds()]
    over = threading.Event()

    def look() -> None:
        while not over.wait(_LOOK_S):
            most.append(max(most[-1], process.num_fds()))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield most
    finally:
        over.set()
        thread.join()


def find_limits() -> dict[str, float]:
    """What this machine and this user may have in all."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    low, high = _read_numbers("/proc/sys/net/ipv4/ip_local_port_range")
    return {
        "memory_mib": round(psutil.virtual_memory().total / _MIB),
        "threads": _read_numbers("/proc/sys/kernel/threads-max")[0],
        "processes": _read_numbers("/proc/sys/kernel/pid_max")[0],
        "files": files,
        "ports": high - low + 1,
    }


def _read_numbers(path: str) -> list[int]:
    return [int(word) for word in Path(path).read_text().split()]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write figures and page after each number of workers."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--workers", type=int, nargs="+", default=_WORKERS)
    parser.add_argument("--page", action="store_true")
    given = parser.parse_args(arguments)
    if not given.page:
        distbench.run(hold, "mwms:2", timeout_s=_TIMEOUT_S)  # the fork server starts
        rows: list[Mapping[str, Any]] = []
        for workers in sorted(given.workers):
            rows.append(measure(workers))
            print(json.dumps(rows[-1]), flush=True)
            document = {"place": describe_place(), "limits": find_limits()}
            write_figures(FIGURES, {**document, "rows": rows})
    PAGE.write_text(make_page(json.loads(FIGURES.read_text("utf-8"))), "utf-8")


if __name__ == "__main__":
    main()
