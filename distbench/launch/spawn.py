"""Starts a task as a new Python process, where a fork server cannot."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping

from distbench.launch.process import ExitStatus, TaskProcess, end_group
from distbench.launch.surroundings import make_python_environment


class SpawnedProcess(TaskProcess):
    """A task that is the bench's own child."""

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        self._popen = popen
        self.pid = popen.pid

    def poll(self) -> ExitStatus | None:
        """How it ended, or None while it lives."""
        lives = self._popen.returncode is None
        code = self._popen.poll()
        if code is None:
            return None
        if lives:
            end_group(self.pid, time.monotonic())
        return ExitStatus(signal=-code) if code < 0 else ExitStatus(code=code)


def spawn_task(
    channel_fd: int, log_fd: int, environment: Mapping[str, str]
) -> SpawnedProcess:
    """Start a task on a channel, with its output in a log."""
    module = __package__ + ".spawned"
    return SpawnedProcess(
        subprocess.Popen(
            [sys.executable, "-m", module, str(channel_fd)],
            stdin=subprocess.DEVNULL,
            stdout=log_fd,
            stderr=log_fd,
            env=make_python_environment(environment),
            cwd="/",
            pass_fds=(channel_fd,),
            start_new_session=True,
        )
    )
