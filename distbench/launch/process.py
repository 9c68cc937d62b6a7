"""One task's process, as the supervisor sees it, however it was started."""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitStatus:
    """How a process ended: one of code and signal is None.

    Attributes:
        code: Exit code.
        signal: Number of the signal that ended it.
        because: What is known beyond that, for the message.
    """

    code: int | None = None
    signal: int | None = None
    because: str = ""

    @classmethod
    def from_wait_status(cls, status: int) -> ExitStatus:
        """Decode what `waitpid` returned."""
        if os.WIFSIGNALED(status):
            return cls(signal=os.WTERMSIG(status))
        return cls(code=os.WEXITSTATUS(status))

    def __str__(self) -> str:
        if self.signal is None:
            text = f"ended with exit code {self.code}"
        else:
            text = f"was killed by {signal.Signals(self.signal).name}"
        return f"{text} ({self.because})" if self.because else text


class TaskProcess(Protocol):
    """A started process; it leads a session and a process group of its own."""

    @property
    def pid(self) -> int:
        """The process id, which is the group's id as well."""

    def poll(self) -> ExitStatus | None:
        """How it ended, reaping it, or None while it lives; never waits."""


def signal_task(process: TaskProcess, number: signal.Signals) -> None:
    """Send a signal to a living task alone, not to what it started."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, number)


def signal_group(process: TaskProcess, number: signal.Signals) -> None:
    """Send a signal to a living task and to everything it started."""
    if process.poll() is not None:
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            # Just forked: it has not made its own group yet.
            os.kill(process.pid, number)
