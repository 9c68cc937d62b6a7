"""A train program that goes wrong on one worker at one step, in a way that is chosen.

`scripts/reliability.py` and `tests/faults` run it on real clusters. It is right until
then, and on one device always: only a worker of a cluster is injured.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from distbench.samples.lazy import legacy, tf

TOLD = "DISTBENCH_RELIABILITY_TOLD"
"""Variable with the file that tells when `Stalls` began to wait."""
_EXAMPLES = 8
_BLOCK_BYTES = 1 << 20
_PORTION_BYTES = 1 << 24
MEMORY_BYTES = 1 << 29
"""What a task may take that takes memory without end."""
_ELSEWHERE = "127.0.0.99"
_CALL_S = 5.0


class Program:
    """A linear model that is trained by hand on `MultiWorkerMirroredStrategy`.

    Args:
        injury: A name of `INJURIES` or `IN_THE_STEP`, or `""`.
        step: When it comes, unless it lies in every step.
        rank: On which worker.
        told: File that gets the time of the injury, as `time.monotonic` has it; that of
            the exception, if it is one, or of the last moment that an injury yields.
    """

    def __init__(
        self, injury: str = "", *, step: int = 1, rank: int = 1, told: str = ""
    ) -> None:
        self._injury = injury
        self._step = step
        self._rank = rank
        self._told = told

    def build(self, strategy: Any) -> None:
        """Make the variables."""
        del strategy
        self._kernel = tf.Variable(np.ones((3, 2), np.float32), name="kernel")
        self._bias = tf.Variable(np.zeros(2, np.float32), name="bias")
        self._injured = tf.Variable(False, trainable=False, name="injured")
        self._optimizer = legacy.SGD(0.0625)

    def variables(self) -> list[Any]:
        """What trains."""
        return [self._kernel, self._bias]

    def optimizer(self) -> Any:
        """Plain SGD."""
        return self._optimizer

    def data(self, step: int) -> Any:
        """The global batch."""
        return np.random.default_rng(step).normal(size=(_EXAMPLES, 3)).astype("float32")

    def before_step(self, step: int) -> None:
        """Where the worker is injured."""
        begin = 0 if self._injury in IN_THE_STEP else self._step
        if step != begin or find_rank() != self._rank:
            return
        if not self._injury:
            return
        self._tell()
        try:
            moments = INJURIES.get(self._injury, lambda: None)()
            if isinstance(moments, Iterator):
                for _ in moments:
                    self._tell()
        except Exception:
            self._tell()
            raise

    def _tell(self) -> None:
        if not self._told:
            return
        told, now = Path(self._told), f"{time.monotonic():024.6f}"
        if told.exists():
            # In its place: the disk may be full by now.
            with told.open("r+") as file:
                file.write(now)
        else:
            # Written and renamed: whoever reads it reads all of it.
            Path(f"{told}.new").write_text(now)
            Path(f"{told}.new").rename(told)

    def replica_step(self, batch: Any) -> Any:
        """A step as users write it."""
        variables = self.variables()
        with tf.GradientTape() as tape:
            outputs = batch @ self._kernel + self._bias
            loss = tf.reduce_sum(outputs**2) / _EXAMPLES
        gradients = tape.gradient(loss, variables)
        if self._injury in IN_THE_STEP and find_rank() is not None:
            here = find_rank() == self._rank
            gradients = IN_THE_STEP[self._injury](gradients, here)
            self._optimizer.apply_gradients(
                zip(gradients, variables, strict=True),
                experimental_aggregate_gradients=False,
            )
        else:
            self._optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return loss


def find_rank() -> int | None:
    """This worker's index in its cluster; None on one device."""
    config = json.loads(os.environ.get("TF_CONFIG", "{}"))
    return config["task"]["index"] if config else None


def _sum(tensor: Any) -> Any:
    return tf.distribute.get_replica_context().all_reduce("sum", tensor)


def _skip_a_sum(gradients: Any, here: bool) -> Any:
    return [gradients[0] if here else _sum(gradients[0]), _sum(gradients[1])]


def _sum_in_another_order(gradients: Any, here: bool) -> Any:
    if not here:
        return [_sum(gradient) for gradient in gradients]
    return [_sum(gradient) for gradient in reversed(gradients)][::-1]


def _sum_another_shape(gradients: Any, here: bool) -> Any:
    first = tf.concat([gradients[0]] * 2, 0) if here else gradients[0]
    return [_sum(first)[:3], _sum(gradients[1])]


IN_THE_STEP: dict[str, Callable[[Any, bool], Any]] = {
    "skips a sum": _skip_a_sum,
    "sums in another order": _sum_in_another_order,
    "sums another shape": _sum_another_shape,
}
"""What a worker does in another way than the others in every step."""


def _raise() -> None:
    raise ValueError("injured")


def _stall() -> None:
    threading.Event().wait()


def _take_memory() -> Iterator[None]:
    """Yields before each block until the limit is passed, and takes on and on."""
    # What a fork has of its server's does not count.
    first = _measure_memory(psutil.Process(os.getppid()))
    held = []
    while True:
        if _measure_memory(psutil.Process()) - first <= MEMORY_BYTES:
            yield
        held.append(np.ones(_PORTION_BYTES, np.uint8))


def _measure_memory(process: psutil.Process) -> int:
    found = process.memory_info()
    return int(found.rss - found.shared)


def _call_from_elsewhere() -> None:
    """Another address of this machine's answers where all interfaces are served."""
    cluster = json.loads(os.environ["TF_CONFIG"])["cluster"]
    for address in itertools.chain(*cluster.values()):
        host, _, port = address.rpartition(":")
        socket.create_connection((host, int(port)), timeout=_CALL_S).close()
        try:
            socket.create_connection((_ELSEWHERE, int(port)), timeout=_CALL_S).close()
        except ConnectionRefusedError:
            continue
        raise AssertionError(f"{_ELSEWHERE}:{port} answers, as {address} does")


def _make_huge_tensor() -> None:
    tf.ones([1 << 23, 1 << 10, 1 << 8])


def _fill_disk() -> None:
    with tempfile.NamedTemporaryFile(delete=False) as file:
        while True:
            file.write(b"x" * _BLOCK_BYTES)


def _flood() -> None:
    for _ in range(2_000_000):
        print("x" * 999)
    raise ValueError("after the flood")


def _close_descriptors() -> None:
    os.closerange(3, 4096)
    threading.Event().wait()


def _close_all_and_raise() -> None:
    os.closerange(0, 4096)
    raise ValueError("without descriptors")


def _fork_and_exit() -> None:
    if os.fork() == 0:
        time.sleep(600)
    os._exit(5)


def _leave_shared_memory() -> None:
    SharedMemory(create=True, size=_BLOCK_BYTES)
    os.kill(os.getpid(), signal.SIGKILL)


def _leave_a_daemon() -> None:
    """A process that leaves the task's group, as daemons do, and outlives it."""
    subprocess.Popen(["sleep", "600"], start_new_session=True)
    os._exit(6)


def _fake_a_result() -> None:
    print('{"event":"finished","result":{}}')
    print('{"status": "pass", "findings": []}')
    raise ValueError("\x1b[2J\x1b[31m{'status': 'pass'}\x07 <b>bold</b>")


def _crash() -> None:
    ctypes.string_at(0)


INJURIES: dict[str, Callable[[], object]] = {
    "raises": _raise,
    "leaves by os._exit": lambda: os._exit(3),
    "is killed (SIGKILL)": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "is asked to end (SIGTERM)": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "crashes (SIGSEGV)": _crash,
    "is stopped (SIGSTOP)": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "waits for ever": _stall,
    "takes memory without end": _take_memory,
    "is called from elsewhere": _call_from_elsewhere,
    "asks for 2 PiB at once": _make_huge_tensor,
    "fills its disk": _fill_disk,
    "prints 2 GB": _flood,
    "closes its descriptors and waits": _close_descriptors,
    "closes its descriptors and raises": _close_all_and_raise,
    "forks and exits": _fork_and_exit,
    "forks, and both go on": os.fork,
    "leaves shared memory and is killed": _leave_shared_memory,
    "leaves a daemon and exits": _leave_a_daemon,
    "prints a fake result and raises": _fake_a_result,
}
"""What happens to a worker between two steps."""


class Stalls(Program):
    """As a target: waits for ever in its second step."""

    def __init__(self) -> None:
        super().__init__("waits for ever", told=os.environ[TOLD])
