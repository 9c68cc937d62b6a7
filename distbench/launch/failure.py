"""What is told when a task fails: who, how, where, and what everybody else did."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from distbench.cluster import Task
from distbench.errors import ClusterError
from distbench.escape import escape_controls
from distbench.launch.crash import CRASHED, read_end
from distbench.launch.process import TaskProcess

TAIL_LINES = 40
_TAIL_BYTES = 1 << 16
_POLL_S = 0.02
_MODULES = "Extension modules: "
_KEPT = "\n\t"

_READER = '/launch/channel.py", line '
_BOTTOM = '/launch/bootstrap.py", line '
"""Frames from here on down are the bench's own start of the task."""


class TaskFailedError(ClusterError):
    """The first task that failed, with what the whole group had to say.

    Attributes:
        task: The task that is to blame.
        cluster: The cluster that it is of, by its spec; a scenario may have two.
        kind: What the task's `classify` said (`subject`, `input`, `port`, `bench`,
            `observer` for the bench's code amid the subject's, `peer` where a
            peer was gone, `collective`), `died` where the process ended, `stopped`,
            `memory`, `injected` where it was hurt on purpose, or `timeout`.
        exception: Name of the exception's type, or `""`.
        message: The exception's text, or `""`.
        traceback: The exception's traceback, or `""`.
        frame: The innermost line of the user's own files, `file:line: source`, or `""`.
        exit_code: Exit code of a process that ended by itself.
        signal: Number of the signal that ended the process.
        step: Last step that the task reported.
        phase: Last phase that the task reported.
        replica: The replica that failed, where the task knew it.
        waiting: The tasks that had not answered when it failed.
        others: What became of each of the other tasks, to follow its name.
        injury: What had been done to tasks on purpose, in words.
        collectives: In what a task waited for the others when it was told to give up:
            `words`, and what the task's `classify` said besides.
        recent: The last collectives that each task began, the oldest first.
        log_tails: The last lines of each task's output.
        stacks: Python stacks of the other tasks that were alive; of one that raised as
            well, its traceback.
    """

    def __init__(
        self,
        summary: str,
        *,
        task: Task,
        kind: str,
        cluster: str = "",
        exception: str = "",
        message: str = "",
        traceback: str = "",
        frame: str = "",
        exit_code: int | None = None,
        signal: int | None = None,
        step: int | None = None,
        phase: str | None = None,
        replica: int | None = None,
        waiting: tuple[Task, ...] = (),
        others: Mapping[Task, str] | None = None,
        collectives: Mapping[Task, Mapping[str, Any]] | None = None,
        recent: Mapping[Task, tuple[str, ...]] | None = None,
        log_tails: Mapping[Task, str] | None = None,
        stacks: Mapping[Task, str] | None = None,
    ) -> None:
        self.task = task
        self.cluster = cluster
        self.kind = kind
        self.exception = exception
        self.message = message
        self.traceback = traceback
        self.frame = frame
        self.exit_code = exit_code
        self.signal = signal
        self.step = step
        self.phase = phase
        self.replica = replica
        self.waiting = waiting
        self.others = dict(others or {})
        self.injury = ""
        self.collectives = dict(collectives or {})
        self.recent = dict(recent or {})
        self.log_tails = dict(log_tails or {})
        self.stacks = dict(stacks or {})
        # What a task said or printed may steer a terminal.
        super().__init__(
            escape_controls(summary, keep=_KEPT),
            detail=escape_controls(self._make_detail(), keep=_KEPT),
        )

    def _make_detail(self) -> str:
        sections = [("Traceback", self.task, self.traceback)]
        sections += [("What became", *item) for item in self.others.items()]
        sections += [
            ("Last collectives", task, "\n".join(lines))
            for task, lines in self.recent.items()
        ]
        sections += [("Python stacks", *item) for item in self.stacks.items()]
        title = "Last lines of the log"
        sections += [(title, *item) for item in self.log_tails.items()]
        return "\n\n".join(
            f"{title} of {task}:\n{text.rstrip()}"
            for title, task, text in sections
            if text.strip()
        )


def read_tail(path: Path) -> str:
    """The last lines of a log, `""` where there is none."""
    text = read_end(path, _TAIL_BYTES)
    # After a crash Python lists all of TensorFlow's imports in one line of pages.
    told = [line for line in text.splitlines() if not line.startswith(_MODULES)]
    # The thread that crashed is told first, and those that waited fill pages.
    crashes = [n for n, line in enumerate(told) if line.startswith(CRASHED)]
    begin = crashes[-1] - TAIL_LINES // 4 if crashes else len(told)
    begin = max(0, min(begin, len(told) - TAIL_LINES))
    return "\n".join(told[begin : begin + TAIL_LINES])


class StackRequest:
    """Asks living tasks for the Python stacks of all their threads.

    The dump is made by a signal handler in C, so it works for a task that waits inside
    TensorFlow.

    Args:
        processes: Whom to ask.
        files: Where each of them writes its stacks.
    """

    def __init__(
        self, processes: Mapping[Task, TaskProcess], files: Mapping[Task, Path]
    ) -> None:
        self._processes = processes
        self._files = files
        self._before = self._measure()
        self._asked_s = time.monotonic()
        for process in processes.values():
            process.send_signal(signal.SIGUSR1)

    def wait(self, timeout_s: float) -> dict[Task, str]:
        """What they answer; a task that gives no answer in time is left out.

        A stopped task is continued now, or it could not answer.

        Args:
            timeout_s: How long they may take, from when they were asked.
        """
        for process in self._processes.values():
            process.send_signal(signal.SIGCONT)
        deadline = self._asked_s + timeout_s
        sizes = self._before
        while self._processes and time.monotonic() < deadline:
            time.sleep(_POLL_S)
            last, sizes = sizes, self._measure()
            # The handler writes a dump in many small pieces and marks no end.
            if sizes == last and all(sizes[t] > self._before[t] for t in sizes):
                break
        stacks: dict[Task, str] = {}
        for task, file in self._files.items():
            with contextlib.suppress(FileNotFoundError):
                dump = file.read_bytes()[self._before[task] :]
                if text := trim_stacks(dump.decode(errors="replace")):
                    stacks[task] = text
        return stacks

    def _measure(self) -> dict[Task, int]:
        return {task: _measure_file(file) for task, file in self._files.items()}


def trim_stacks(dump: str) -> str:
    """Take out of a dump what every task shows: the bench's own frames."""
    threads = []
    for thread in dump.strip().split("\n\n"):
        lines = thread.splitlines()
        if any(_READER in line and line.endswith(" in _read") for line in lines):
            continue
        ends = (i for i, line in enumerate(lines) if _BOTTOM in line)
        threads.append("\n".join(lines[: next(ends, len(lines))]))
    return "\n\n".join(threads)


def _measure_file(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
