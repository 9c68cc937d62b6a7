"""A start that fails half way leaves nothing, and a fork of the bench ends nothing."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest
from scripted_group import Maker, ScriptedChannel, ScriptedProcess

from distbench.cluster import ClusterSpec, Task
from distbench.errors import ClusterError
from distbench.launch.channel import BenchChannel, Message
from distbench.launch.engine import Engine, Places, Request, Room
from distbench.launch.process import ExitStatus, TaskProcess
from distbench.launch.rundir import GroupFiles, RunDirectory
from distbench.launch.start import start_group
from distbench.launch.watch import Watch, Watcher
from distbench.machine import Machine


class Broken(Engine, Places):
    """Places of which something cannot be had.

    Args:
        lack: `task`, `message` or `watch`; empty for nothing.
    """

    addresses: Mapping[str, tuple[str, ...]] = {"worker": ("here:1", "here:2")}

    def __init__(self, lack: str) -> None:
        self.lack = lack
        self.closed = 0
        self.processes: list[ScriptedProcess] = []
        self.channels: list[BenchChannel] = []

    def inspect(self) -> Machine:
        raise AssertionError

    def find_room(self) -> Room:
        raise AssertionError

    def find_places(self, request: Request) -> Places:
        return self

    def find_environment(self, task: Task) -> Mapping[str, str]:
        return {}

    def start(
        self, task: Task, files: GroupFiles, message: Message
    ) -> tuple[BenchChannel, TaskProcess]:
        if self.lack == "task" and self.processes:
            raise ClusterError("no task")
        process = ScriptedProcess(None)
        if self.lack == "message" and self.processes:
            process.hear = self.refuse
        if not self.lack:
            process.hear = partial(self.end, process)
        self.processes.append(process)
        self.channels.append(ScriptedChannel(process))
        return self.channels[-1], process

    def refuse(self, message: Message) -> None:
        raise ClusterError("no message")

    def end(self, process: ScriptedProcess, message: Message) -> None:
        if "exit" in message:
            process.history = [ExitStatus(code=0)]

    def make_watch(self) -> Watcher:
        if self.lack == "watch":
            raise ClusterError("no watch")
        return Watch(look=lambda _: None, room_bytes=1)

    def close(self) -> None:
        self.closed += 1


def start(engine: Broken, folder: Path) -> None:
    with RunDirectory(folder) as directory:
        spec = ClusterSpec.parse("mwms:2")
        request = Request(spec=spec, directory=directory, entry="no:entry")
        with start_group(request, engine):
            assert engine.closed == 0
            assert not any(process.signals for process in engine.processes)


@pytest.mark.parametrize(
    ("lack", "started"), [("task", 1), ("message", 2), ("watch", 2), ("", 2)]
)
def test_a_start_that_fails_half_way_is_undone(
    lack: str, started: int, tmp_path: Path
) -> None:
    engine = Broken(lack)
    if lack:
        with pytest.raises(ClusterError, match=f"no {lack}"):
            start(engine, tmp_path)
    else:
        start(engine, tmp_path)
    assert len(engine.processes) == started
    assert engine.closed == 1
    for process, channel in zip(engine.processes, engine.channels, strict=True):
        assert signal.SIGKILL in process.signals or not lack
        assert process.poll() is not None
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(channel.fileno())
        process.theirs.close()


def test_a_fork_of_the_bench_does_not_end_the_benchs_tasks(
    make_scripted: Maker,
) -> None:
    """What runs as it exits is the bench's own, which the fork has inherited."""
    process = ScriptedProcess(None)
    group = make_scripted(process)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            group._finalizer()
            code = len(process.signals)
        finally:
            os._exit(code)
    assert os.waitpid(child, 0) == (child, 0)
    group._finalizer()
    assert process.signals == [signal.SIGKILL]
