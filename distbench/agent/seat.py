"""One remote process on the bench's side: its channel, log, stacks, files and end."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import signal
import socket
import threading
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

from distbench.agent.mirror import Mirror
from distbench.agent.wire import Wire
from distbench.launch.channel import Message
from distbench.launch.process import ExitStatus, TaskProcess
from distbench.launch.watch import Look

_READS = b'"reads"'
"""The key under which a job's message names all files that it reads."""
_DEATHS = itertools.count(1)
"""Deaths in the order in which the bench hears of them, over all agents."""


class RemoteProcess(TaskProcess):
    """A process that an agent has started.

    Attributes:
        number: Tells it from all that agents have started for this bench.
        exit: How it ended.
    """

    def __init__(self, wire: Wire, number: int) -> None:
        self._wire = wire
        self.pid = -1
        self.number = number
        self._look: Look | None = None
        self.exit: ExitStatus | None = None

    def poll(self) -> ExitStatus | None:
        """How it ended, or None while it lives."""
        return self.exit

    def note_look(self, look: Look) -> None:
        """The agent has looked at it."""
        self._look = look

    def take_look(self) -> Look | None:
        """What it was seen to do last, if that is new."""
        look, self._look = self._look, None
        return look

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the task alone, if it lives."""
        self._ask_for(number, is_for_group=False)

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to the task and to everything it started, if it lives."""
        self._ask_for(number, is_for_group=True)

    def _ask_for(self, number: signal.Signals, *, is_for_group: bool) -> None:
        order = {"do": "signal", "number": self.number, "signal": int(number)}
        if self.exit is None:
            with contextlib.suppress(OSError):
                self._wire.send({**order, "is_for_group": is_for_group})


class Seat:
    """Stands between the group and an agent while one process lives.

    What the group says is passed on by a thread of its own, after the files that it
    names; what comes from the agent is taken in by the agent's thread.

    Args:
        wire: The connection to the agent.
        process: The process.
        channel: The other end of the group's channel.
        root: The run's folder.
        mirror: What the agent has of it.
        log: The file for the process's output.
        stacks: The file for its Python stacks.
        notes: The file in which it takes down what it does.
    """

    def __init__(
        self,
        wire: Wire,
        process: RemoteProcess,
        channel: socket.socket,
        *,
        root: Path,
        mirror: Mirror,
        log: Path,
        stacks: Path,
        notes: Path,
    ) -> None:
        self._wire = wire
        self._process = process
        self._channel = channel
        self._root = root
        self._mirror = mirror
        self._log = log
        self._stacks = stacks
        self._notes = notes
        name = f"to process {process.number}"
        threading.Thread(target=self._pass_on, name=name, daemon=True).start()

    @property
    def number(self) -> int:
        """The process's number."""
        return self._process.number

    def take(self, told: Message, body: bytes) -> None:
        """Take in what the agent tells."""
        match told["tell"]:
            case "say":
                with contextlib.suppress(OSError):  # nobody listens any more
                    self._channel.sendall(body)
            case "log":
                _append(self._log, body)
            case "stacks":
                _append(self._stacks, body)
            case "notes":
                with contextlib.suppress(OSError):
                    self._notes.write_bytes(body)
            case "file":
                self._mirror.write(told["name"], body)
            case "look":
                look = Look(**{field.name: told[field.name] for field in fields(Look)})
                self._process.note_look(look)
            case "hung_up":
                self._end_stream()
            case "exited":
                self.note_exit(_read_exit(told))

    def note_exit(self, status: ExitStatus) -> None:
        """The process has ended; the first status counts."""
        if self._process.exit is None:
            self._process.exit = replace(status, order=next(_DEATHS))
        self._end_stream()

    def _end_stream(self) -> None:
        with contextlib.suppress(OSError):
            self._channel.shutdown(socket.SHUT_WR)

    def _pass_on(self) -> None:
        number = self.number
        with self._channel, contextlib.suppress(OSError):
            for line in self._channel.makefile("rb"):
                for name, content in self._mirror.list_news(self._find_names(line)):
                    header = {"do": "file", "number": number, "name": name}
                    self._wire.send(header, content)
                self._wire.send({"do": "say", "number": number}, line)
            self._wire.send({"do": "hang_up", "number": number})

    def _find_names(self, line: bytes) -> Iterator[str]:
        """The files and folders of the run that a message names.

        A folder stands for all that is in it, unless the message says what is read.
        """
        is_told = _READS in line
        for path in re.findall(_make_pattern(self._root), line):
            name = path.decode()
            is_folder = is_told and (self._root / name).is_dir()
            yield f"{name}/" if is_folder else name


def _read_exit(told: Message) -> ExitStatus:
    """How a process ended, and its fork server if it died of that."""
    status = {field.name: told[field.name] for field in fields(ExitStatus)}
    server = status["server"]
    return ExitStatus(**{**status, "server": _read_exit(server) if server else None})


def _make_pattern(root: Path) -> bytes:
    """Finds what follows the folder's name in JSON, and in JSON that is a string of it.

    Names in the folder are the bench's own: plain ones.
    """
    once = json.dumps(str(root))[1:-1]
    twice = json.dumps(once)[1:-1]
    either = "|".join(map(re.escape, (once, twice)))
    return rf'(?:{either})/([^"\\]+)'.encode()


def _append(path: Path, text: bytes) -> None:
    with contextlib.suppress(OSError), path.open("ab") as file:
        file.write(text)
