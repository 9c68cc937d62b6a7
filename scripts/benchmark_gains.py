"""Benches that lack one of the things that make tasks cheap, each in its own process.

    python scripts/benchmark_gains.py NAME    # serves: a line in, a check, seconds out

The seconds are of processor time: of the bench, its fork servers and their tasks.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any
from unittest import mock

from measure_check import SUBJECT
from processor import measure_processor

import distbench
from distbench.observe import launching

CLUSTER = "mwms:2"
_TIMEOUT_S = 60


def run_searching(channel: Any, context: Any) -> None:
    """Entry of a task in which AutoGraph searches the modules."""
    from distbench.worker import main

    with mock.patch.object(main, "leave_modules_alone"):
        main.run_task(channel, context)


def run_collecting(channel: Any, context: Any) -> None:
    """Entry of a task whose garbage collector visits all that was imported."""
    import gc

    from distbench.worker import main

    gc.unfreeze()
    main.run_task(channel, context)


def run_tracing(channel: Any, context: Any) -> None:
    """Entry of a task in which a step that makes variables is always traced twice."""
    from distbench.worker import main
    from distbench.worker.stepping import steps

    with mock.patch.object(steps, "trace_at_once"):
        main.run_task(channel, context)


LACKS: Mapping[str, Mapping[str, str]] = {
    "as it is": {},
    "small pages, an arena for each thread": {"GLIBC_TUNABLES": ""},
    "AutoGraph searches all modules": {"entry": "benchmark_gains:run_searching"},
    "the collector visits what was imported": {
        "entry": "benchmark_gains:run_collecting"
    },
    "each step is traced twice": {"entry": "benchmark_gains:run_tracing"},
    "each task asks for the first time": {
        "left_out": "distbench.worker.process.beforehand"
    },
}


class Bench:
    """A bench of its own, which lacks something.

    Args:
        name: Key of `LACKS`.
    """

    def __init__(self, name: str) -> None:
        changes = {k: v for k, v in LACKS[name].items() if k.isupper()}
        folder = str(Path(__file__).parent)
        self._process = subprocess.Popen(
            [sys.executable, __file__, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                **changes,
                "PYTHONPATH": os.pathsep.join([folder, *filter(None, sys.path)]),
            },
        )

    def measure(self) -> float:
        """Seconds of processor time of one more check."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(file=self._process.stdin, flush=True)
        return float(self._process.stdout.readline())

    def __enter__(self) -> Bench:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(_TIMEOUT_S)


def serve(name: str) -> None:
    """Check once for every line of the input; print what it took."""
    lacks = LACKS[name]
    launching.ENTRY = lacks.get("entry", launching.ENTRY)
    kept = [module for module in launching.PRELOADS if module != lacks.get("left_out")]
    # A task that had to import its entry's module would pay for that, not for a lack.
    launching.PRELOADS = (*kept, launching.ENTRY.partition(":")[0])
    for _ in sys.stdin:
        begin = measure_processor()
        distbench.check(SUBJECT, CLUSTER, steps=3)
        print(measure_processor() - begin, flush=True)


if __name__ == "__main__":
    serve(sys.argv[1])
