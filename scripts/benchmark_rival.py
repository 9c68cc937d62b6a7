"""Other ways to run a cluster: TensorFlow's own runner, its pool, and bare forks.

The first two are TensorFlow's test code: they want `dill` and `tblib`, and to be told
that the main function of a test has run. A process of its own keeps what they leave
behind, and the settings of Abseil, out of the bench.

Bare forks of a process that has imported TensorFlow are what fresh processes cost
without anything around them: no deadline, no log, nobody who notices that one died.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import benchmark_program
import portpicker

from distbench.launch.surroundings import make_python_environment

_TIMEOUT_S = 600
_TOOK = "took "
_TRIES = 5


class Rival:
    """Runs a function of `benchmark_program` without the bench.

    Args:
        kind: TensorFlow's `run` has fresh processes each time, `pool` the same ones;
            `forks` are fresh ones of a process that has imported TensorFlow.
        workers: How many.
        program: The function's name.
    """

    def __init__(
        self,
        kind: Literal["run", "pool", "forks"],
        workers: int,
        program: str = "train",
    ) -> None:
        environment = {
            **make_python_environment(os.environ),
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "CUDA_VISIBLE_DEVICES": "-1",
            # Where its processes find the program.
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]),
        }
        self._arguments = (__file__, kind, str(workers), program)
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
            "A rival of the bench ended without an answer. See why with: echo go | "
            f"{sys.executable} {' '.join(self._arguments)}"
        )

    def __enter__(self) -> Rival:
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


def _make_runner(kind: str, workers: int, program: str) -> Any:
    train = getattr(benchmark_program, program)
    if kind == "forks":
        import tf_keras  # noqa: F401  # before the forks, and TensorFlow with it

        gc.freeze()
        return lambda: fork_all(train, workers)
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


def fork_all(train: Callable[[], float], workers: int) -> list[float]:
    """What a function returns in each worker of a cluster of forks of this process.

    Nobody holds their ports for them, and one may be gone: then all start again.
    """
    for _ in range(_TRIES):
        answers = _fork_once(train, workers)
        if all(answers):
            return list(map(float, answers))
    raise RuntimeError(f"A fork failed in each of {_TRIES} tries.")


def _fork_once(train: Callable[[], float], workers: int) -> list[str]:
    """What each worker answers; nothing where it failed."""
    addresses = [f"127.0.0.1:{portpicker.pick_unused_port()}" for _ in range(workers)]
    pipes = [os.pipe() for _ in range(workers)]
    pids = []
    for number, (_, answer) in enumerate(pipes):
        pids.append(os.fork())
        if pids[-1] == 0:
            try:
                os.environ["TF_CONFIG"] = json.dumps(
                    {
                        "cluster": {"worker": addresses},
                        "task": {"type": "worker", "index": number},
                    }
                )
                os.write(answer, repr(train()).encode())
            finally:
                os._exit(0)
    answers = []
    for reader, answer in pipes:
        os.close(answer)
        with open(reader, encoding="ascii") as told:  # noqa: PTH123  # a descriptor
            answers.append(told.read())
    for pid in pids:
        os.waitpid(pid, 0)
    return answers


def serve(kind: str, workers: int, program: str) -> None:
    """Run once for every line of the input; print how long it took."""
    import time

    run = _make_runner(kind, workers, program)
    for _ in sys.stdin:
        begin = time.perf_counter()
        values = run()
        taken = time.perf_counter() - begin
        assert len(values) == workers, values
        assert len(set(values)) == 1, values
        print(f"{_TOOK}{taken}", flush=True)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), sys.argv[3])
