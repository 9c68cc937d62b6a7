"""A group whose tasks do what a script says, by a clock that a script drives."""

from __future__ import annotations

import itertools
import json
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from distbench.cluster import Task
from distbench.launch import blame, events
from distbench.launch.channel import BenchChannel, Message
from distbench.launch.group import Group
from distbench.launch.member import Member
from distbench.launch.process import ExitStatus, TaskProcess
from distbench.launch.watch import Watch

Maker = Callable[..., Group]


class ScriptedProcess(TaskProcess):
    """Ends when the script says so; its channel's other end is the script's."""

    def __init__(self, *history: ExitStatus | None, pid: int = -1) -> None:
        self.pid = pid
        self.history = list(history)
        self.signals: list[signal.Signals] = []
        self.ours, self.theirs = socket.socketpair()
        self.hear: Callable[[Message], None] = lambda _: None

    def poll(self) -> ExitStatus | None:
        now = self.history.pop(0) if len(self.history) > 1 else self.history[0]
        if self.history[0] is not None:
            self.theirs.close()  # EOF tells the loop to look again
        return now

    def send_signal(self, number: signal.Signals) -> None:
        if number == signal.SIGKILL:
            self.signal_group(number)
        else:
            self.signals.append(number)

    def signal_group(self, number: signal.Signals) -> None:
        if self.poll() is None:
            self.signals.append(number)
            self.history = [ExitStatus(signal=number)]
            self.theirs.close()

    def end_when_asked(self) -> None:
        self.asked = json.loads(self.theirs.recv(1000))
        self.history = [ExitStatus(code=0)]
        self.theirs.close()

    def say(self, **message: Any) -> None:
        self.theirs.sendall(json.dumps(message).encode() + b"\n")


class ScriptedChannel(BenchChannel):
    """Lets a task answer at once what it is sent."""

    def __init__(self, process: ScriptedProcess) -> None:
        super().__init__(process.ours)
        self._process = process

    def send(self, message: Message, *, timeout_s: float) -> bool:
        self._process.hear(message)
        return super().send(message, timeout_s=timeout_s)


def tick(seconds: float) -> Callable[[], float]:
    """A clock that goes on by so much whenever it is asked."""
    return itertools.count(0.0, seconds).__next__


@contextmanager
def open_scripted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Maker]:
    """Makes groups of scripted processes, whose channels are closed at the end."""
    monkeypatch.setattr(blame, "_STACKS_S", 0.0)
    processes: list[ScriptedProcess] = []

    def make(*scripted: ScriptedProcess, **options: Any) -> Group:
        processes.extend(scripted)
        members = [
            Member(
                task=Task(role="worker", index=index),
                channel=ScriptedChannel(process),
                process=process,
                log=tmp_path / "log",
                stacks=tmp_path / "stacks",
                notes=tmp_path / f"notes-{index}",
            )
            for index, process in enumerate(scripted)
        ]
        clock = options.get("clock", time.monotonic)
        if "clock" in options:
            # Its time passes by being asked for, and not while the loop waits.
            monkeypatch.setattr(events, "LOOK_S", 0.0)
        script = {"look": lambda pid: None, "room_bytes": 1, **options.pop("watch", {})}
        watch = Watch(clock=clock, **script)
        return Group("scripted", members, watch=watch, **options)

    yield make
    for process in processes:
        process.theirs.close()


COMPLAINT = {
    "event": "failed",
    "exception": "UnavailableError",
    "message": "peer lost",
    "traceback": "",
    "kind": "bench",
}
