"""One task on the agent's side: its process, and all that it says and leaves."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from distbench.agent.mirror import Mirror
from distbench.agent.wire import Wire
from distbench.launch.channel import BenchChannel, Message, encode_message
from distbench.launch.forkclient import ForkServer
from distbench.launch.local import start_process
from distbench.launch.process import TaskProcess, kill_processes
from distbench.launch.watch import LOOK_S, look_at

_HEAR_S = 30.0
_CHUNK_BYTES = 1 << 16


class RemoteTask:
    """A task of one group; a second process may take the place of the first.

    Args:
        wire: The connection to the bench.
        selector: Of the agent's loop; its data are functions.
        folder: Where the task's copy of the run's folder is made.
        order: What the bench said of it: `root` (its own folder of the run), `stacks`,
            `notes` and `scratch` (paths in it) and `environment`.
        host: The address that its servers are kept on; `""` leaves them alone.
    """

    def __init__(
        self,
        wire: Wire,
        selector: selectors.BaseSelector,
        folder: Path,
        order: Message,
        host: str,
    ) -> None:
        self._wire = wire
        self._host = host
        self._selector = selector
        self._order = order
        # A new one: of the last task's something may be left that was still written to.
        self._root = Path(tempfile.mkdtemp(prefix="run-", dir=folder))
        self._mirror = Mirror(self._root)
        scratch, stacks = self._root / order["scratch"], self._root / order["stacks"]
        self._notes = self._root / order["notes"]
        for place in (scratch, stacks.parent, self._notes.parent):
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.mkfifo(stacks, 0o600)
        # Both ends are open here, so that neither ever ends.
        self._stacks = os.open(stacks, os.O_RDWR | os.O_NONBLOCK)
        self._log, self._log_writer = os.pipe()
        os.set_blocking(self._log, False)
        for descriptor, send in (
            (self._log, self._send_log),
            (self._stacks, self._send_stacks),
        ):
            selector.register(descriptor, selectors.EVENT_READ, send)
        self._process: TaskProcess | None = None
        self._channel: BenchChannel | None = None
        self._number = 0
        self._is_started = False
        self._look_at_s = 0.0

    def start(self, number: int, server: ForkServer | None) -> int:
        """Start a process that waits for its start message; returns its pid.

        Args:
            number: The bench's number for it: what is said of another is too late.
            server: Who forks it; None spawns it.
        """
        self._drop_channel()
        self._number = number
        channel, self._process = start_process(
            server, self._log_writer, self._order["environment"], self._host
        )
        self._channel, self._is_started = channel, False
        self._selector.register(channel, selectors.EVENT_READ, self._tell)
        # Before the bench knows of it, and so before any job.
        self._look_at_s = 0.0
        pid = self._process.pid
        self.look()
        return pid

    def obey(self, order: Message, body: bytes) -> None:
        """Do what the bench asks of the process."""
        if order["number"] != self._number:
            return
        match order["do"]:
            case "say":
                self._hear(body)
            case "file":
                self._mirror.write(order["name"], body)
            case "signal":
                self._signal(signal.Signals(order["signal"]), order["is_for_group"])
            case "hang_up":
                self._drop_channel()

    def _hear(self, line: bytes) -> None:
        line = _rename(line, self._order["root"], str(self._root))
        message: Message = json.loads(line)
        if not self._is_started:
            self._is_started = True
            message = self._settle(message)
        if self._channel is not None:
            self._channel.send(message, timeout_s=_HEAR_S)

    def _signal(self, number: signal.Signals, is_for_group: bool) -> None:
        if self._process is None:
            return
        # Who wants its stacks wants to know what it did, too.
        self._send_notes()
        if is_for_group:
            self._process.signal_group(number)
        else:
            self._process.send_signal(number)

    def look(self) -> None:
        """Tell of what no event tells of: its memory, and whether it is stopped."""
        self.check_exit()
        if self._process is None or time.monotonic() < self._look_at_s:
            return
        self._look_at_s = time.monotonic() + LOOK_S
        seen = look_at(self._process.pid)
        if seen is not None:
            self._send("look", **asdict(seen))

    def check_exit(self) -> None:
        """Tell of the process's end, after all that it has said and left."""
        if self._process is None or (ended := self._process.poll()) is None:
            return
        self._process = None
        self._tell()
        self._send_log()
        self._send_stacks()
        self._send_notes()
        self._send_files()
        self._send("exited", **asdict(ended))

    def kill(self) -> None:
        """Kill the process, from any thread, and wait for nothing."""
        if self._process is not None:
            self._process.signal_group(signal.SIGKILL)

    def end(self) -> None:
        """End the process, and remove the copy of the folder."""
        if self._process is not None:
            kill_processes((self._process,))
            self._process = None
        self._drop_channel()
        for descriptor in (self._log, self._stacks):
            self._selector.unregister(descriptor)
        for descriptor in (self._log, self._log_writer, self._stacks):
            os.close(descriptor)
        shutil.rmtree(self._root, ignore_errors=True)

    def _settle(self, start: Message) -> Message:
        """The start message, for this machine."""
        here = [entry for entry in start["sys_path"] if Path(entry).exists()]
        return {
            **start,
            "cwd": start["cwd"] if Path(start["cwd"]).is_dir() else str(self._root),
            "sys_path": [*here, *(entry for entry in sys.path if entry not in here)],
        }

    def _tell(self) -> None:
        """Pass on what the task says, after the files that it may be about."""
        if self._channel is None:
            return
        for message in self._channel.receive():
            if message["event"] != "progress":
                self._send_files()
                self._send_notes()
            line = encode_message(message)
            line = _rename(line, str(self._root), self._order["root"])
            self._send("say", line)
        if self._channel.at_eof:
            self._drop_channel()
            self._send("hung_up")
            self.check_exit()

    def _send(self, tell: str, body: bytes = b"", **told: Any) -> None:
        self._wire.send({"tell": tell, "number": self._number, **told}, body)

    def _drop_channel(self) -> None:
        if self._channel is not None:
            self._selector.unregister(self._channel)
            self._channel.close()
            self._channel = None

    def _send_files(self) -> None:
        for name, content in self._mirror.list_news():
            self._send("file", content, name=name)

    def _send_log(self) -> None:
        self._send_all(self._log, "log")

    def _send_stacks(self) -> None:
        self._send_all(self._stacks, "stacks")

    def _send_notes(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._send("notes", self._notes.read_bytes())

    def _send_all(self, descriptor: int, what: str) -> None:
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(descriptor, _CHUNK_BYTES):
                self._send(what, chunk)


def _rename(line: bytes, before: str, after: str) -> bytes:
    """Replace a path in a line of JSON, also in JSON that is a string of it."""
    for depth in (2, 1):
        old, new = before, after
        for _ in range(depth):
            old, new = json.dumps(old)[1:-1], json.dumps(new)[1:-1]
        line = line.replace(old.encode(), new.encode())
    return line
