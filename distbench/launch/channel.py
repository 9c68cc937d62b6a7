"""A duplex stream of JSON lines between the bench and one task.

Both ends are one Unix socket pair, so each side learns of the other's death by
reading EOF, whatever killed it: no heartbeat and no timeout is needed.

Bench to task, after the start message (`distbench.launch.bootstrap`):
`{"job": name, "payload": {...}}`, `{"give_up": true}` to a task that waits for others
(it fails then, and says in what it waited), `{"go_on": true}` to a task that waits
with its progress, and `{"exit": true}` as the polite end.

Task to bench: `{"event": "progress", "step": 3, "phase": "loss", "waits": false}`,
`{"event": "finished", "result": {...}}` and `{"event": "failed", "kind": "subject",
"exception": "ValueError", "message": ..., "traceback": ..., "step": ..., "phase": ...,
"replica": ...}`.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import queue
import signal
import socket
import subprocess
import threading
from collections.abc import Callable
from typing import Any, NoReturn

from distbench.launch.process import TIDY_S

Message = dict[str, Any]

EXIT_BENCH_GONE = 75
"""Exit code of a task whose bench is gone; nobody is left to see it but a log."""

EXIT_CHANNEL_CLOSED = 76
"""Exit code of a task whose own code closed the channel's descriptor."""

_CHUNK_BYTES = 1 << 16
_FIELDS = {
    "progress": {"step", "phase", "waits"},
    "finished": {"result"},
    "failed": {"kind", "exception", "message", "traceback"},
}
"""What each event of a task's comes with at least."""
_QUOTED_BYTES = 80


def encode_message(message: Message) -> bytes:
    """One line of JSON; `TypeError` or `ValueError` where the message is not JSON."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def _read_message(line: bytes) -> Message:
    """What a task said; if no task says so, that it failed: others wrote there."""
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(line)
        if isinstance(found, dict):
            fields = _FIELDS.get(str(found.get("event")))
            if fields is not None and fields <= found.keys():
                return found
    quoted = line[:_QUOTED_BYTES]
    return {
        "event": "failed",
        "kind": "bench",
        "exception": "GarbledError",
        "message": (
            f"its connection to the bench had {quoted!r} on it, which no task says. "
            "Some code there writes to a descriptor that it has not opened."
        ),
        "traceback": "",
    }


def end_at_once() -> NoReturn:
    """End this task, whose bench is gone, and then everything that it started."""
    if os.getpgrp() == os.getpid():
        try:
            subprocess.Popen(
                ["/bin/sh", "-c", f"sleep {TIDY_S}; kill -s KILL 0"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        except OSError:
            os.killpg(0, signal.SIGKILL)
    os._exit(EXIT_BENCH_GONE)


def _exit_if_closed(error: OSError) -> None:
    """Exit if the subject closed what it did not open: the bench lives."""
    if error.errno in (errno.EBADF, errno.ENOTSOCK):
        os._exit(EXIT_CHANNEL_CLOSED)


class BenchChannel:
    """The bench's end: reading never blocks, so one loop can watch many tasks."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._partial = bytearray()
        self.at_eof = False

    def fileno(self) -> int:
        """The descriptor, for selectors."""
        return self._sock.fileno()

    def send(self, message: Message, *, timeout_s: float) -> bool:
        """Send a message; False where the task is gone or does not read in time."""
        self._sock.settimeout(timeout_s)
        try:
            self._sock.sendall(encode_message(message))
        except OSError:
            return False
        else:
            return True
        finally:
            self._sock.setblocking(False)

    def receive(self) -> list[Message]:
        """All messages that have arrived; sets `at_eof` when the task has gone."""
        while not self.at_eof:
            try:
                chunk = self._sock.recv(_CHUNK_BYTES)
            except BlockingIOError:
                break
            except ConnectionResetError:
                # The task died with messages unread; what it had sent came first.
                chunk = b""
            self._partial += chunk
            self.at_eof = not chunk
        *lines, rest = self._partial.split(b"\n")
        self._partial = rest
        return [_read_message(bytes(line)) for line in lines]

    def close(self) -> None:
        """Close this end: the task ends itself."""
        self._sock.close()


class TaskChannel:
    """The task's end.

    A daemon thread reads, because the main thread is busy with a job when the bench
    dies; it then ends the process at once.

    Attributes:
        step: Last step number reported by `report_progress`, or None.
        phase: Last phase reported, or None.
        give_up: Called in a thread of its own when the bench wants the task to wait for
            the others no longer.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        os.register_at_fork(after_in_child=self._give_up_speaking)
        self._inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._write_lock = threading.Lock()
        self._may_go_on = threading.Semaphore(0)
        self.step: int | None = None
        self.phase: str | None = None
        self.give_up: Callable[[], None] = lambda: None
        threading.Thread(target=self._read, name="bench-channel", daemon=True).start()

    def _give_up_speaking(self) -> None:
        """In a fork of the task, which may go on as if it were the task."""
        with contextlib.suppress(OSError):  # a fork of a fork
            os.close(self._sock.detach())

    def receive(self) -> Message:
        """Wait for the bench's next message, as long as the bench lives."""
        return self._inbox.get()

    def send(self, message: Message) -> None:
        """Send a message to the bench; ends the process where the bench is gone."""
        line = encode_message(message)
        try:
            with self._write_lock:
                self._sock.sendall(line)
        except OSError as error:
            _exit_if_closed(error)
            end_at_once()

    def report_progress(
        self,
        *,
        step: int | None = None,
        phase: str | None = None,
        waits: bool = False,
    ) -> None:
        """Tell the bench how far this task has come; shown when something fails.

        Args:
            step: The step that begins; None is the last one.
            phase: What is done in it.
            waits: Whether to wait until the bench has taken it in: whatever it does to
                a task at this step is done by then.
        """
        self.step = self.step if step is None else step
        self.phase = phase
        told = {"event": "progress", "step": self.step, "phase": self.phase}
        self.send({**told, "waits": waits})
        if waits:
            self._may_go_on.acquire()

    def _read(self) -> None:
        try:
            with self._sock.makefile("rb") as lines:
                for line in lines:
                    message = json.loads(line)
                    if "give_up" in message:
                        # Whatever that waits for, EOF must still be seen here.
                        threading.Thread(target=self.give_up, daemon=True).start()
                    elif "go_on" in message:
                        self._may_go_on.release()
                    else:
                        self._inbox.put(message)
        except OSError as error:
            # It may come back to its descriptor before anything is sent.
            _exit_if_closed(error)
        finally:
            end_at_once()
