"""The bench's side of a fork server: what it asks it, and how long it waits."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from distbench.errors import ClusterError
from distbench.launch.forkserver import PACKET_BYTES
from distbench.launch.process import (
    STOPPED,
    ExitStatus,
    TaskProcess,
    end_group,
    start_program,
)
from distbench.launch.surroundings import make_python_environment
from distbench.launch.watch import LOOK_S, look_at

READY_TIMEOUT_S = 180.0
_FORK_TIMEOUT_S = 30.0
_END_TIMEOUT_S = 5.0
_DYING_TIMEOUT_S = 1.0
_LONG_S = 30.0
"""An import that takes longer is told of: nothing else is to be seen meanwhile."""


class ServerDiedError(ClusterError):
    """The fork server is gone, or was of no use; a new one may be started."""


class UnfitError(ClusterError):
    """The imported modules do not allow a fork; tasks have to be spawned."""


class ForkServer:
    """A running fork server. Starting does not wait; the first fork does."""

    def __init__(
        self, preload: tuple[str, ...], environment: Mapping[str, str]
    ) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed by _end_server
        with theirs:
            self._popen = start_program(
                [
                    sys.executable,
                    "-m",
                    __package__ + ".forkserver",
                    f"{theirs.fileno()}",
                ],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                env=make_python_environment({**os.environ, **environment}),
                cwd="/",
                pass_fds=(theirs.fileno(),),
                # Ctrl-C in the terminal reaches the bench alone, which then decides.
                start_new_session=True,
            )
        self._lock = threading.RLock()
        self._exits: dict[int, ExitStatus] = {}
        self._reaped = 0
        self._ready = threading.Event()
        self._unfit = ""
        self.dead = False
        self._dead_s = 0.0
        self._look_at_s = 0.0
        self._stopped = False
        self._ended_stopped = False
        self._preload = preload
        self._names = ", ".join(preload)
        self._finalizer = weakref.finalize(
            self,
            _end_server,
            self._control,
            self._popen,
            self._output,
            self._ready,
            os.getpid(),
        )
        self._send({"preload": preload})

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._popen.pid

    def fileno(self) -> int:
        """The control socket's descriptor, for selectors."""
        return self._control.fileno()

    def wait_ready(self, log: Callable[[str], None] = lambda _: None) -> None:
        """Wait until the modules are imported.

        Args:
            log: Told once if that takes long.

        Raises:
            UnfitError: The process must not be forked after these imports.
            ClusterError: An import failed, or took longer than `READY_TIMEOUT_S`.
            ServerDiedError: The server died, or was stopped.
        """
        with self._lock:
            if self._unfit:
                raise UnfitError(self._unfit)
            if self._ready.is_set():
                return
            report = self._receive(
                READY_TIMEOUT_S,
                lambda: log(
                    f"The fork server (pid {self.pid}) still imports {self._names}. "
                    f"It has {READY_TIMEOUT_S:g} s in all."
                ),
            )
            if "failed" in report:
                self.close()
                advice = report["advice"] or (
                    "Check the installation with "
                    f"{sys.executable} -c 'import {self._names}'."
                )
                raise ClusterError(
                    f"The fork server could not import {self._names}. Received: "
                    f"{report['failed'].strip().splitlines()[-1]}. {advice}"
                    if self._preload
                    else "The fork server could not run its check.",
                    detail=report["failed"],
                )
            self._unfit = report.get("unfit", "")
            if self._unfit:
                raise UnfitError(self._unfit)
            self._ready.set()

    def fork(self, channel_fd: int, log_fd: int, host: str) -> ForkedProcess:
        """Start a task on a channel, with its output in a log.

        Args:
            channel_fd: The channel's descriptor.
            log_fd: The log's.
            host: The address that its servers are kept on; `""` leaves them alone.

        Raises:
            ClusterError: The machine has no room for another process.
            ServerDiedError: The server died, or was stopped.
        """
        with self._lock:
            self.wait_ready()
            try:
                return self._fork(channel_fd, log_fd, host)
            except ClusterError:
                raise
            except BaseException:
                # Interrupted between question and answer: the next answer would be
                # taken for that of another question.
                self.close()
                raise

    def _fork(self, channel_fd: int, log_fd: int, host: str) -> ForkedProcess:
        self._send({"host": host}, (channel_fd, log_fd))
        while True:
            answer = self._receive(_FORK_TIMEOUT_S)
            if "forked" in answer:
                # The pid may have belonged to a task of long ago.
                self._exits.pop(answer["forked"], None)
                return ForkedProcess(self, answer["forked"])
            if "error" in answer:
                raise ClusterError(
                    f"The fork server could not fork a task: {answer['error']}. "
                    "Use a smaller cluster or free memory and processes."
                )
            self._note_exit(answer)

    def poll_exit(self, pid: int) -> ExitStatus | None:
        """How a task ended, or None while it lives; takes it from the books."""
        with self._lock:
            self.read_exits()
            self._look()
            if not self.dead:
                return self._exits.pop(pid, None)
            if pid in self._exits:
                return self._exits.pop(pid)
            # The kernel has killed the tasks of the dead server, but not what they
            # started; init reaps them.
            end_group(pid, self._dead_s)
            server = ExitStatus.from_returncode(self._popen.returncode)
            if self._ended_stopped:
                server = replace(server, because=STOPPED)
            return ExitStatus(signal=signal.SIGKILL, server=server)

    def read_exits(self) -> None:
        """Take in what the server has reported; notices its death."""
        with self._lock, contextlib.suppress(BlockingIOError, ServerDiedError):
            while not self.dead:
                self._note_exit(self._receive(0.0))

    def _look(self) -> None:
        """End a server that is found stopped twice.

        Its tasks wait for it where they listen for their peers, and nobody reaps them.
        """
        now_s = time.monotonic()
        if self.dead or now_s < self._look_at_s:
            return
        self._look_at_s = now_s + LOOK_S
        seen = look_at(self.pid)
        was_stopped, self._stopped = self._stopped, seen is not None and seen.stopped
        if was_stopped and self._stopped:
            self._end_stopped()

    def close(self) -> None:
        """End the server and all its tasks."""
        if not self.dead:
            self.dead, self._dead_s = True, time.monotonic()
        self._finalizer()

    def _note_exit(self, packet: Mapping[str, Any]) -> None:
        self._reaped += 1
        status = ExitStatus.from_wait_status(packet["status"], order=self._reaped)
        self._exits[packet["exited"]] = status

    def _send(self, packet: Mapping[str, Any], fds: tuple[int, ...] = ()) -> None:
        try:
            socket.send_fds(self._control, [json.dumps(packet).encode()], fds)
        except OSError as error:
            raise self._make_died_error() from error

    def _receive(
        self, timeout_s: float, on_long: Callable[[], None] = lambda: None
    ) -> dict[str, Any]:
        """The next packet; `on_long` is called once, where it takes its time."""
        self._control.settimeout(min(timeout_s, LOOK_S))
        was_stopped = False
        for turn in range(max(1, math.ceil(timeout_s / LOOK_S))):
            try:
                packet = self._control.recv(PACKET_BYTES)
            except ConnectionError as error:
                raise self._make_died_error() from error
            except TimeoutError:
                seen = look_at(self.pid)
                is_stopped = seen is not None and seen.stopped
                if is_stopped and was_stopped:
                    raise self._make_stopped_error() from None
                was_stopped = is_stopped
                if turn == _LONG_S // LOOK_S:
                    on_long()
                continue
            if not packet:
                raise self._make_died_error()
            return json.loads(packet)  # type: ignore[no-any-return]  # our own protocol
        raise self._make_late_error(timeout_s)

    def _end_stopped(self) -> None:
        self._ended_stopped = True
        self._popen.send_signal(signal.SIGCONT)  # so that it ends its tasks in order
        self.close()

    def _make_stopped_error(self) -> ServerDiedError:
        self._end_stopped()
        return ServerDiedError(
            f"The fork server (pid {self.pid}), which starts the tasks, {STOPPED}. "
            "Look who stops processes here."
        )

    def _make_late_error(self, timeout_s: float) -> ClusterError:
        doing = "" if self._ready.is_set() else f" while it imported {self._names}"
        self.close()
        return ClusterError(
            f"The fork server (pid {self.pid}), which starts the tasks, gave no answer "
            f"in {timeout_s:g} s{doing}. The machine may be short of memory or "
            "processors, or its disk slow: look with 'distbench doctor', and try again."
        )

    def _make_died_error(self) -> ServerDiedError:
        output = ""
        if not self._output.closed:
            self._output.seek(0)
            output = self._output.read().decode(errors="replace")[-4000:]
        # Its end of the connection closes a moment before it is gone, and the signal
        # that ended it is not to be the one that closing it sends.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(_DYING_TIMEOUT_S)
        self.close()
        ended = ExitStatus.from_returncode(self._popen.returncode)
        return ServerDiedError(
            f"The fork server (pid {self.pid}), which starts the tasks, {ended}. "
            f"{ended.explain()}".rstrip(),
            detail=output,
        )


class ForkedProcess(TaskProcess):
    """A task that a fork server made, and reaps."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self.server = server
        self.pid = pid
        self._exit: ExitStatus | None = None

    def poll(self) -> ExitStatus | None:
        """How it ended, or None while it lives."""
        self._exit = self._exit or self.server.poll_exit(self.pid)
        return self._exit


def _end_server(
    control: socket.socket,
    popen: subprocess.Popen[bytes],
    output: Any,  # a temporary file, whose type is private
    ready: threading.Event,
    owner: int,
) -> None:
    control.close()
    output.close()
    if os.getpid() != owner:
        return  # a fork of the bench must not end the bench's server
    try:
        # One that still imports has no tasks to end, and does not listen.
        popen.wait(_END_TIMEOUT_S if ready.is_set() else 0.0)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(popen.pid, signal.SIGKILL)
        popen.wait()
