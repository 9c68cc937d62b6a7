"""Slurm's commands: how they are started, and the job that holds the nodes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from functools import partial
from types import TracebackType

from distbench.agent.engine import CPUS_PER_TASK, QUEUE_S, Waiting
from distbench.errors import ClusterError, count_things
from distbench.launch.bootstrap import die_with_parent
from distbench.launch.engine import Demand
from distbench.launch.surroundings import add_root

_ASK_S = 60.0
_END_S = 10.0
_POLL_S = 0.05
_QUIET_S = 1.0
_HEIR = (
    'read -r _; n=0; while kill -0 "$0" 2>/dev/null; do n=$((n + 1)); '
    '[ $n -lt 40 ] || kill -KILL "$0"; sleep 0.2; done'
)
"""A shell that outlives the bench, and has a command eight seconds to end after it: one
that waits in the queue of a controller that is gone does not listen to SIGTERM."""


class Allocation:
    """A job of `salloc`, as long as its context is open or the bench lives.

    Args:
        demand: What is asked for.
        log: Told how long it is waited for.

    Attributes:
        job: The job's number, once the context is open.
    """

    def __init__(self, demand: Demand, log: Callable[[str], None]) -> None:
        self._demand = demand
        self._log = log
        self.job = ""

    def __enter__(self) -> Allocation:
        demand = self._demand
        gpus = [f"--gpus-per-task={demand.gpus_per_task}"] * bool(demand.gpus_per_task)
        self._popen = subprocess.Popen(
            [
                "salloc",
                f"--ntasks={demand.tasks}",
                f"--cpus-per-task={CPUS_PER_TASK}",
                "--spread-job",
                # Who loses a node goes on on the others.
                "--no-kill",
                "--job-name=distbench",
                *gpus,
                "sh",
                "-c",
                'echo "$SLURM_JOB_ID"; read -r _',
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=make_environment({}),
            text=True,
            # Ctrl-C in the terminal reaches the bench alone, which then decides.
            start_new_session=True,
            preexec_fn=partial(die_with_parent, os.getpid(), signal.SIGTERM),
        )
        self._heir = subprocess.Popen(
            ["/bin/sh", "-c", _HEIR, str(self._popen.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._said: list[str] = []
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        self._reader = threading.Thread(target=self._read_job, daemon=True)
        self._reader.start()
        try:
            self._wait()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._popen.stdin is not None
        self._popen.stdin.close()
        if not self.job:
            self._popen.terminate()  # it waits in the queue, and reads nothing yet
        end_command(self._popen)
        self._heir.kill()
        self._heir.communicate()
        for thread in (self._listener, self._reader):
            thread.join(_END_S)
        for pipe in (self._popen.stdout, self._popen.stderr):
            assert pipe is not None
            pipe.close()

    def _wait(self) -> None:
        demand = self._demand
        gpus = (
            f" of {count_things(demand.gpus_per_task, 'GPU')} each"
            if demand.gpus_per_task
            else ""
        )
        what = f"nodes for {count_things(demand.tasks, 'task')}{gpus}"
        late = f"Slurm gave no {what} within {QUEUE_S / 3600:g} hours."
        waiting = Waiting(self._log, QUEUE_S, _QUIET_S)
        while not self.job:
            if self._popen.poll() is not None and not self._reader.is_alive():
                self._listener.join(_END_S)
                raise ClusterError(
                    f"Slurm gave no {what}. Received: {' '.join(self._said)}"
                )
            last = f" ({self._said[-1]})" if self._said else ""
            waiting.look(f"{what}{last}", late)
            time.sleep(_POLL_S)

    def _listen(self) -> None:
        assert self._popen.stderr is not None
        self._said.extend(map(str.strip, self._popen.stderr))

    def _read_job(self) -> None:
        assert self._popen.stdout is not None
        self.job = self._popen.stdout.readline().strip()


def ask_slurm(*command: str) -> str:
    """What a command says.

    Raises:
        ClusterError: It failed, or said nothing in time.
    """
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=_ASK_S, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or ""
        raise ClusterError(
            f"'{' '.join(command)}' failed: {error}. {said}".strip()
        ) from error


def make_environment(own: dict[str, str]) -> dict[str, str]:
    """Variables of a command; a job's own options would be taken for the command's."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("SLURM_") or name == "SLURM_CONF"
    }
    return {**kept, "PYTHONPATH": add_root(kept.get("PYTHONPATH", "")), **own}


def end_command(popen: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    """Wait for a command, then ask it to end, then kill it."""
    for end in (None, popen.terminate, popen.kill):
        if end is not None:
            end()
        with contextlib.suppress(subprocess.TimeoutExpired):
            popen.wait(_END_S)
            return
