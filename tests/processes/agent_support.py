"""An engine for tests: each node is a folder and a loopback address of this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from distbench.agent.door import TICKET, Door, Ticket
from distbench.agent.engine import AgentEngine, Starting
from distbench.launch.engine import Room
from distbench.machine import Machine, inspect_machine

PATH = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[2])])


class FolderAgent:
    """An agent that runs as a child of the bench."""

    def __init__(self, ticket: Ticket, folder: Path, enter: tuple[str, ...]) -> None:
        self.address = ticket.address
        self.is_lost = False
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed with it
        self.popen = subprocess.Popen(
            [*enter, sys.executable, "-m", "distbench.agent"],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            cwd=folder,
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": PATH,
                "TMPDIR": str(folder),
                "HOME": str(folder),
                TICKET: json.dumps(asdict(ticket)),
            },
            start_new_session=True,
        )

    def find_end(self) -> str | None:
        if self.popen.poll() is None:
            return None
        self._output.seek(0)
        return self._output.read().decode()

    def close(self) -> None:
        if self.popen.poll() is None:
            try:
                self.popen.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self.popen.kill()
                self.popen.wait()
        self._output.close()

    def release(self, *, is_lost: bool) -> None:
        self.is_lost = is_lost


class FolderEngine(AgentEngine):
    """Starts agents as children, in turn on 127.0.0.11, 127.0.0.12 and so on.

    Args:
        base: Where the nodes' folders are made.
        nodes: How many there are.
        host: The bench's address.
        hosts: The nodes' addresses, with a number to be put in.
        enter: What an agent's command begins with.
        allow_public: Whether nodes may have addresses that the world can reach.
        room: How many tasks of clusters there may be at one time.
    """

    def __init__(
        self,
        base: Path,
        *,
        nodes: int = 2,
        host: str = "127.0.0.1",
        hosts: str = "127.0.0.{}",
        enter: tuple[str, ...] = (),
        allow_public: bool = False,
        room: int = 2,
    ) -> None:
        super().__init__(host, allow_public=allow_public)
        self._base = base
        self._hosts = hosts
        self._enter = enter
        self._nodes = nodes
        self._room = room
        self.agents: list[FolderAgent] = []

    def inspect(self) -> Machine:
        return inspect_machine()

    def find_room(self) -> Room:
        return Room(tasks=self._room, gpu_tasks=0)

    def start_agent(self, door: Door, gpus: int) -> tuple[Ticket, Starting]:
        node = len(self.agents) % self._nodes
        ticket = door.issue(address=self._hosts.format(11 + node))
        folder = self._base / f"node-{node}-{ticket.identity}"
        folder.mkdir()
        self.agents.append(FolderAgent(ticket, folder, self._enter))
        return ticket, self.agents[-1]
