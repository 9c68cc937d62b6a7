"""Very many scenarios in one bench process: what it is like after them.

    scripts/reliability --only thousand

Kinds of scenarios come in an order that is drawn. Right is that each kind has the same
verdict whenever it comes, that memory stays within 5 %, that nothing is left open, and
that a scenario costs no more than in a bench that has just been started: the old one
and a fresh one take turns at last, so that what else the machine does slows both. Cost
is processor time, of the bench, its servers and their tasks.
"""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil
from processor import list_benches, measure_processor

import distbench

SCENARIOS = 1000
_WINDOW = 100
"""Scenarios at first (once each kind has been met) and at last whose memory counts."""
_TURNS = 40
"""How often each kind is run by the old bench and by the fresh one."""
_MOST_GROWTH = 0.05
_FRESH = "--fresh"
KINDS: Mapping[str, tuple[str, str]] = {
    "one device": ("one", "default"),
    "mirrored": ("mirrored:2", "default"),
    "mirrored, not summed": ("mirrored:2", "none"),
    "workers": ("mwms:2", "default"),
}
"""Cluster and path of each kind of scenario; one of them fails."""


def make_optimizer() -> Any:
    """SGD with a slot."""
    import tf_keras

    return tf_keras.optimizers.legacy.SGD(0.5, momentum=0.5)


def run_kind(name: str) -> str:
    """Run a scenario; everything that its verdict says, but for seconds."""
    cluster, path = KINDS[name]
    verdict = distbench.check(
        make_optimizer, cluster, path=path, workload="linear", tier="exact", steps=1
    )
    return repr(
        [(run.status, run.message, run.worst, run.findings) for run in verdict.runs]
    )


def measure_memory() -> float:
    """Memory of their own that the bench and its fork servers have written, in MiB.

    Pages of libraries are left out: whose they are depends on who else has them.
    """
    return sum(map(_read_anonymous, list_benches()))


def _read_anonymous(process: psutil.Process) -> float:
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0]) / 1024


def count_open() -> int:
    """Descriptors, threads and children of the bench and its servers."""
    processes = list_benches()
    return sum(p.num_fds() + p.num_threads() + len(p.children()) for p in processes)


def measure_cost(name: str) -> float:
    """Seconds of processor time that a scenario takes."""
    begin = measure_processor()
    run_kind(name)
    return measure_processor() - begin


def run_many(count: int, seed: int, look: Callable[[int], None]) -> dict[str, Any]:
    """Run so many scenarios.

    Args:
        count: How many.
        seed: Draws their order.
        look: Told of how many are done.
    """
    names = [name for name in KINDS for _ in range(count // len(KINDS))]
    random.Random(seed).shuffle(names)
    # What is imported and cached when a kind comes for the first time is no leak.
    said = {name: {run_kind(name)} for name in KINDS}
    memory, open_ = [measure_memory()], [count_open()]
    for number, name in enumerate(names):
        said[name].add(run_kind(name))
        memory.append(measure_memory())
        open_.append(count_open())
        look(number + 1)
    first, last = memory[1 : _WINDOW + 1], memory[-_WINDOW:]
    return {
        "scenarios": count,
        "kinds with more than one verdict": sum(len(s) > 1 for s in said.values()),
        "MiB at first": round(statistics.median(first), 1),
        "MiB at last": round(statistics.median(last), 1),
        "descriptors, threads and children at first": open_[0],
        "at last": open_[-1],
        "cost against that in a fresh bench": round(compare_costs(_TURNS), 3),
    }


def compare_costs(turns: int) -> float:
    """Median over the kinds: the median cost here over that in a fresh bench."""
    command = [sys.executable, __file__, _FRESH]
    ours: dict[str, list[float]] = {name: [] for name in KINDS}
    theirs: dict[str, list[float]] = {name: [] for name in KINDS}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as fresh:
        assert fresh.stdin is not None
        assert fresh.stdout is not None
        for _ in range(turns):
            for name in KINDS:
                ours[name].append(measure_cost(name))
                print(name, file=fresh.stdin, flush=True)
                theirs[name].append(float(fresh.stdout.readline()))
        fresh.stdin.close()
    return statistics.median(
        statistics.median(ours[name]) / statistics.median(theirs[name])
        for name in KINDS
    )


def serve_costs() -> None:
    """Be the fresh bench: for each name on stdin, the cost of its scenario."""
    for name in KINDS:
        run_kind(name)
    for line in sys.stdin:
        print(measure_cost(line.strip()), flush=True)


def is_right(found: Mapping[str, Any]) -> bool:
    """Whether nothing grew, and each kind had one verdict."""
    grown = found["MiB at last"] / found["MiB at first"] - 1
    dearer = found["cost against that in a fresh bench"] - 1
    return (
        found["kinds with more than one verdict"] == 0
        and max(grown, dearer) <= _MOST_GROWTH
        and found["at last"] == found["descriptors, threads and children at first"]
    )


def main() -> int:
    """Run as many as are asked for; 1 where something grew."""
    if _FRESH in sys.argv:
        serve_costs()
        return 0
    count = int(sys.argv[1]) if len(sys.argv) > 1 else SCENARIOS

    def look(done: int) -> None:
        if done % 50 == 0:
            print(f"{done} of {count}: {measure_memory():.1f} MiB", flush=True)

    found = run_many(count, seed=1, look=look)
    print(json.dumps(found))
    return 0 if is_right(found) else 1


if __name__ == "__main__":
    sys.exit(main())
