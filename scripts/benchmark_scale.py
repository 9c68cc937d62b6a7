"""One check of a large model, measured from inside of its bench process.

Prints one line of JSON: peaks of memory, what the traces took on disk, how much was
recorded before equal contents were put together, and how long judging it took.

    python scripts/benchmark_scale.py --layers 512 1600 100 --replicas 2 --steps 3
"""

from __future__ import annotations

import argparse
import json
import math
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from benchmark_program import Network

import distbench
import distbench.checking.judging as judging
from distbench.evidence import Evidence
from distbench.trace import SparseRows, Trace, Values
from distbench.trace.shelf import Shelved

_EVERY_S = 0.2
_KIB = 1 << 10


class Watch(threading.Thread):
    """Looks at the memory of all tasks of this bench, every now and then.

    Attributes:
        peak_bytes: The most that they had together, what they share counted once.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._ended = threading.Event()
        self.peak_bytes = 0

    def run(self) -> None:
        """Look until it is ended."""
        bench = psutil.Process()
        while not self._ended.wait(_EVERY_S):
            now = 0
            for task in bench.children(recursive=True):
                try:
                    now += task.memory_full_info().pss
                except psutil.Error:
                    continue  # it has ended since
            self.peak_bytes = max(self.peak_bytes, now)

    def end(self) -> int:
        """Stop looking; returns the peak."""
        self._ended.set()
        self.join()
        return self.peak_bytes


class Timed:
    """Stands in for `judge`, and adds up its seconds and what it was given."""

    def __init__(self) -> None:
        self._judge = judging.judge
        self.seconds = 0.0
        self.recorded_bytes = 0

    def __call__(self, evidence: Evidence) -> Any:
        """Judge, and remember how long it took."""
        self.recorded_bytes += sum(map(count_bytes, list_traces(evidence)))
        begin = time.perf_counter()
        judgement = self._judge(evidence)
        self.seconds += time.perf_counter() - begin
        return judgement


def find_peak() -> int:
    """Bytes of memory that this process has had at most, pages of files included."""
    for line in Path("/proc/self/status").read_text("utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * _KIB
    raise RuntimeError("/proc/self/status does not tell the peak of memory")


def list_traces(evidence: Evidence) -> Iterator[Trace]:
    """All traces of an evidence."""
    yield from (evidence.observed, evidence.reference, *evidence.twins)
    yield from (*evidence.fed.replays.values(), *evidence.probes.values())
    yield from (*evidence.fed.repeated, *evidence.reruns, *evidence.earlier)


def count_bytes(trace: Trace) -> int:
    """Bytes of all values; none of them is read."""
    return sum(map(_count, Values(trace.values).held.values()))


def _count(held: Any) -> int:
    if isinstance(held, Shelved):
        return math.prod(held.shape) * np.dtype(held.dtype).itemsize
    if isinstance(held, SparseRows):
        return int(held.values.nbytes + held.indices.nbytes)
    return int(held.nbytes)


def main() -> None:
    """Check the model and print what it took."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--layers", type=int, nargs=3, required=True)
    parser.add_argument("--replicas", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    given = parser.parse_args()
    judging.judge = timed = Timed()  # type: ignore[assignment]  # called alike
    watch = Watch()
    watch.start()
    begin = time.perf_counter()
    verdict = distbench.check(
        Network(tuple(given.layers), examples=8 * given.replicas),
        cluster=f"mirrored:{given.replicas}@cpu",
        tiers=["bounded"],
        steps=given.steps,
        timeout_s=3000,
    )
    document = {
        "status": str(verdict.status),
        "checked": sum(run.checked for run in verdict.runs),
        "bench_bytes": find_peak(),
        "tasks_bytes": watch.end(),
        "disk_bytes": sum(run.disk_bytes for run in verdict.runs),
        "recorded_bytes": timed.recorded_bytes,
        "judge_s": timed.seconds,
        "check_s": time.perf_counter() - begin,
    }
    print(json.dumps(document))


if __name__ == "__main__":
    main()
