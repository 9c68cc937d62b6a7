"""Very many scenarios in one bench process: what they cost at first and at last.

    scripts/reliability --only thousand

Kinds of scenarios come in an order that is drawn anew each time. Right is that each
kind has the same verdict whenever it comes, that memory stays within 5 %, and that
nothing is left open. A machine that has other work is slower at times: the cost of a
scenario is told by processor time, against that of a piece of work that is always the
same, done between any two scenarios.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import psutil

import distbench

SCENARIOS = 1000
_WINDOW = 100
"""Scenarios at first (once each kind has been met) and at last that are compared."""
_MOST_GROWTH = 0.05
_SERVER = "distbench.launch.forkserver"
_MIB = 1 << 20
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


def measure_processor() -> float:
    """Seconds of processor time so far: the bench, its servers, and their tasks."""
    total = 0.0
    for process in [psutil.Process(), *_list_servers()]:
        times = process.cpu_times()
        total += times.user + times.system
        total += times.children_user + times.children_system
    return total


def measure_memory() -> float:
    """Private memory of the bench and its fork servers, in MiB."""
    processes = [psutil.Process(), *_list_servers()]
    return sum(process.memory_full_info().uss for process in processes) / _MIB


def count_open() -> int:
    """Descriptors, threads and children of the bench and its servers."""
    processes = [psutil.Process(), *_list_servers()]
    return sum(p.num_fds() + p.num_threads() + len(p.children()) for p in processes)


def _list_servers() -> list[psutil.Process]:
    children = psutil.Process().children()
    return [child for child in children if _SERVER in child.cmdline()]


def _do_always_the_same() -> float:
    begin = time.process_time()
    sum(number * number for number in range(200_000))
    return time.process_time() - begin


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
    costs: list[tuple[str, float]] = []
    for number, name in enumerate(names):
        begin = measure_processor()
        said[name].add(run_kind(name))
        spent = measure_processor() - begin
        costs.append((name, spent / _do_always_the_same()))
        memory.append(measure_memory())
        open_.append(count_open())
        look(number + 1)
    first, last = memory[1 : _WINDOW + 1], memory[-_WINDOW:]
    return {
        "scenarios": count,
        "kinds with more than one verdict": sum(len(s) > 1 for s in said.values()),
        "MiB at first": round(statistics.median(first), 1),
        "MiB at last": round(statistics.median(last), 1),
        "cost at last against at first": round(compare_costs(costs), 3),
        "descriptors, threads and children at first": open_[0],
        "at last": open_[-1],
    }


def compare_costs(costs: Sequence[tuple[str, float]]) -> float:
    """Median over the kinds: the median cost at last over that at first."""
    ratios = []
    for name in {name for name, _ in costs}:
        first, last = (
            [cost for kind, cost in part if kind == name]
            for part in (costs[:_WINDOW], costs[-_WINDOW:])
        )
        if first and last:
            ratios.append(statistics.median(last) / statistics.median(first))
    return statistics.median(ratios)


def is_right(found: Mapping[str, Any]) -> bool:
    """Whether nothing grew, and each kind had one verdict."""
    grown = found["MiB at last"] / found["MiB at first"] - 1
    return (
        found["kinds with more than one verdict"] == 0
        and grown <= _MOST_GROWTH
        and found["at last"] == found["descriptors, threads and children at first"]
    )


def main() -> int:
    """Run as many as are asked for; 1 where something grew."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else SCENARIOS

    def look(done: int) -> None:
        if done % 50 == 0:
            print(f"{done} of {count}: {measure_memory():.1f} MiB", flush=True)

    found = run_many(count, seed=1, look=look)
    print(json.dumps(found))
    return 0 if is_right(found) else 1


if __name__ == "__main__":
    sys.exit(main())
