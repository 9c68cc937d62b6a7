"""TensorFlow's own runner of several processes, and its pool.

Both are TensorFlow's test code: they want `dill` and `tblib`, and to be told that the
main function of a test has run. A process of its own keeps what they leave behind, and
the settings of Abseil, out of the bench.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

_TIMEOUT_S = 600
_TOOK = "took "


class TensorFlowRunner:
    """Runs `benchmark_program.train` by TensorFlow's own means.

    Args:
        kind: `run` has fresh processes each time, `pool` the same ones.
        workers: How many.
    """

    def __init__(self, kind: Literal["run", "pool"], workers: int) -> None:
        environment = {
            **os.environ,
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "CUDA_VISIBLE_DEVICES": "-1",
            # Where its processes find the program.
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]),
        }
        self._arguments = (__file__, kind, str(workers))
        self._process = subprocess.Popen(
            [sys.executable, *self._arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
            # Its processes outlive it where it is killed, so all of them are ended.
            start_new_session=True,
        )

    def measure(self) -> float:
        """Seconds of one more run."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        # Its processes print as well.
        for line in self._process.stdout:
            if line.startswith(_TOOK):
                return float(line.removeprefix(_TOOK))
        raise SystemExit(
            "TensorFlow's runner ended without an answer. See why with: echo go | "
            f"{sys.executable} {' '.join(self._arguments)}"
        )

    def __enter__(self) -> TensorFlowRunner:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_TIMEOUT_S if kind is None else 1)
        except subprocess.TimeoutExpired:
            pass
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def _make_runner(kind: str, workers: int) -> Any:
    from benchmark_program import train
    from tensorflow.python.distribute import (
        multi_process_lib,
        multi_process_runner,
        multi_worker_test_base,
    )

    multi_process_lib._test_main_called = True
    if kind == "pool":
        spec = multi_worker_test_base.create_cluster_spec(num_workers=workers)
        pool = multi_process_runner.MultiProcessPoolRunner(spec)
        return lambda: pool.run(train)

    def run() -> Any:
        spec = multi_worker_test_base.create_cluster_spec(num_workers=workers)
        return multi_process_runner.run(train, spec).return_value

    return run


def serve(kind: str, workers: int) -> None:
    """Run once for every line of the input; print how long it took."""
    import time

    run = _make_runner(kind, workers)
    for _ in sys.stdin:
        begin = time.perf_counter()
        values = run()
        taken = time.perf_counter() - begin
        assert len(values) == workers, values
        assert len(set(values)) == 1, values
        print(f"{_TOOK}{taken}", flush=True)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
