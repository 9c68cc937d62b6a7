"""One task's process, as the supervisor sees it, however it was started."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from distbench.errors import ClusterError, find_advice

TIDY_S = 0.5
"""How long what a task started may outlive it, to tidy up: Python's resource tracker,
say, removes the shared memory of a process when that has ended."""
_POLL_S = 0.005
_KILL_S = 5.0
_ENDED_BY: Mapping[int | None, str] = {
    signal.SIGKILL: "Linux does so when memory runs out: see 'dmesg' and use fewer "
    "tasks. It does so too where a process may take no more processor time "
    "('ulimit -t'). Else somebody sent it.",
    signal.SIGABRT: "Its log shows why. TensorFlow does so where it may start no "
    "more threads ('ulimit -u') or take no more memory ('ulimit -v').",
    signal.SIGSEGV: "Its log shows what it did last.",
    signal.SIGXCPU: "It has used the processor time that it may take ('ulimit -t').",
}
"""Why a process was ended, by the signal that did it."""
_GATHERED: Mapping[int | None, str] = {
    signal.SIGSEGV: " TensorFlow does so between CPUs where workers gather nothing: an "
    "all_gather, or the sum of a sparse gradient, of no rows on any of them.",
}
"""What may be the reason besides where it gathered from others."""
_LEFT = (
    "The bench ends no process so: look for os._exit, or a library that calls exit(), "
    "in what it ran."
)
STOPPED = "was stopped by a signal such as SIGSTOP, and was ended"
"""What became of a fork server that answered nobody any more."""
_MORE_PROCESSES = "There may be no more processes: raise the limit ('ulimit -u')."


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitStatus:
    """How a process ended: one of code and signal is None.

    Attributes:
        code: Exit code.
        signal: Number of the signal that ended it.
        because: What is known beyond that, for the message.
        order: Grows with every process that one parent has reaped: of two deaths that
            are noticed together, the one with the smaller number came first.
        server: How the fork server ended, if the process died of that.
    """

    code: int | None = None
    signal: int | None = None
    because: str = ""
    order: int = 0
    server: ExitStatus | None = None

    @classmethod
    def from_wait_status(cls, status: int, *, order: int = 0) -> ExitStatus:
        """Decode what `waitpid` returned."""
        if os.WIFSIGNALED(status):
            return cls(signal=os.WTERMSIG(status), order=order)
        return cls(code=os.WEXITSTATUS(status), order=order)

    @classmethod
    def from_returncode(cls, code: int | None) -> ExitStatus:
        """Decode what `subprocess` has of a process, None if it was not reaped."""
        if code is None:
            return cls()
        return cls(signal=-code) if code < 0 else cls(code=code)

    def explain(self, *, has_gathered: bool = False) -> str:
        """Why it may have ended, in sentences; `""` if nothing more can be said.

        Args:
            has_gathered: Whether it may have been gathering from peers as it ended.
        """
        if self.server is not None and self.server.because == STOPPED:
            return "Look who stops processes here."
        if self.server is not None:
            return self.server.explain()
        if self.code is not None:
            return "" if self.because else _LEFT
        peers = _GATHERED.get(self.signal, "") if has_gathered else ""
        return _ENDED_BY.get(self.signal, "") + peers

    def __str__(self) -> str:
        if self.signal is not None:
            text = f"was killed by {name_signal(self.signal)}"
        elif self.code is not None:
            text = f"ended with exit code {self.code}"
        else:
            text = "was lost"
        if self.server is not None and self.server.because == STOPPED:
            return f"{text} (its fork server {STOPPED})"
        if self.server is not None:
            return f"{text} (its fork server died: it {self.server})"
        return f"{text} ({self.because})" if self.because else text


def name_signal(number: int) -> str:
    """A signal's name; real-time ones have a number alone."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class TaskProcess(ABC):
    """A started process; it leads a session and a process group of its own.

    Whoever reaps it ends its group.

    Attributes:
        pid: The process id, which is the group's id as well.
    """

    pid: int

    @abstractmethod
    def poll(self) -> ExitStatus | None:
        """How it ended, reaping it, or None while it lives; never waits."""

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the task alone, if it lives."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, number)

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to the task and to everything it started, if it lives."""
        if self.poll() is not None:
            return
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            # Just forked: it has not made its own group yet.
            self.send_signal(number)
        except PermissionError:
            pass  # macOS answers so for a group of which only a zombie is left


def start_program(command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a process, as `subprocess.Popen` does.

    Raises:
        ClusterError: The machine does not let us.
    """
    try:
        return subprocess.Popen(command, **options)
    except OSError as error:
        is_limit = error.errno == errno.EAGAIN
        advice = _MORE_PROCESSES if is_limit else find_advice(error)
        raise ClusterError(
            f"The bench could not start '{command[0]}': {error}. "
            f"{advice or 'Look whether this user may run it.'}"
        ) from error


def end_group(group: int, ended_s: float) -> None:
    """Wait until nobody is left of the group of a task that has ended, or kill it.

    Args:
        group: The task's former pid.
        ended_s: When it ended, as `time.monotonic` has it.
    """
    deadline = ended_s + TIDY_S
    with contextlib.suppress(ProcessLookupError, PermissionError):
        while time.monotonic() < deadline:
            # While any of it is alive its number cannot be given away.
            os.killpg(group, 0)
            time.sleep(_POLL_S)
        os.killpg(group, signal.SIGKILL)


def kill_processes(processes: Iterable[TaskProcess]) -> None:
    """Kill and reap what still lives."""
    left = list(processes)
    for process in left:
        process.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + _KILL_S
    while left := [process for process in left if process.poll() is None]:
        if time.monotonic() > deadline:
            return  # it is stuck in the kernel, which ends it when it can
        time.sleep(_POLL_S)
