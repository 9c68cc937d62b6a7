"""Starts a task as a new Python process, where a fork server cannot."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping

from distbench.launch.process import (
    ExitStatus,
    TaskProcess,
    end_group,
    start_program,
)
from distbench.launch.surroundings import make_python_environment
from distbench.launch.warden import watch_binds


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
        return ExitStatus.from_returncode(code)


def spawn_task(
    channel_fd: int, log_fd: int, environment: Mapping[str, str], host: str
) -> SpawnedProcess:
    """Start a task on a channel, with its output in a log.

    Args:
        channel_fd: The channel's descriptor.
        log_fd: The log's.
        environment: What the process is started with.
        host: The address that its servers are kept on; `""` leaves them alone.
    """
    module = __package__ + ".spawned"
    arrivals, door = socket.socketpair()
    with door:
        own = (channel_fd, door.fileno())
        process = SpawnedProcess(
            start_program(
                [sys.executable, "-m", module, *map(str, own), host],
                stdin=subprocess.DEVNULL,
                stdout=log_fd,
                stderr=log_fd,
                env=make_python_environment(environment),
                cwd="/",
                pass_fds=own,
                start_new_session=True,
            )
        )
    # A thread for each: as long as the task's last descendant lives.
    name = f"warden of {process.pid}"
    threading.Thread(
        target=watch_binds, args=(arrivals,), name=name, daemon=True
    ).start()
    return process
