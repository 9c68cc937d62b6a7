"""An agent as the bench sees it: its task looks like one of this machine."""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from distbench.agent.mirror import Mirror
from distbench.agent.seat import RemoteProcess, Seat
from distbench.agent.wire import Wire
from distbench.cluster import Task
from distbench.errors import DISK_FULL, BadInputError, ClusterError
from distbench.launch.channel import BenchChannel, Message
from distbench.launch.halt import Halt
from distbench.launch.process import ExitStatus, TaskProcess
from distbench.launch.rundir import GroupFiles

_FORK_S = 60.0
_POLL_S = 0.2
_NUMBERS = itertools.count(1)


class RemoteAgent:
    """The bench's end of the connection to one agent.

    Args:
        wire: The connection.
        hello: What the agent said of itself and its node.

    Attributes:
        node: Name of the agent's node.
        address: The address under which its peers find it.
        environment: The node's own variables.
        lost: Whether the connection has ended.
        why: Why, in words that follow its name.
        log: Told what the user should know.
    """

    def __init__(self, wire: Wire, hello: Mapping[str, Any]) -> None:
        self._wire = wire
        self.node = str(hello["node"])
        self.address = str(hello["address"])
        self.environment: dict[str, str] = dict(hello["environment"])
        self.lost = False
        self.why = "is gone"
        self.log: Callable[[str], None] = lambda _: None
        self._answers: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._seat: Seat | None = None
        self._mirror: Mirror | None = None
        self._owner = os.getpid()
        name = f"agent on {self.node}"
        threading.Thread(target=self._listen, name=name, daemon=True).start()

    @property
    def place(self) -> str:
        """The node's name and address."""
        return f"node {self.node} ({self.address})"

    def ask(self, do: str, **order: Any) -> None:
        """Give an order. That an agent is gone, whoever waits for it finds out."""
        with contextlib.suppress(OSError):
            self._wire.send({"do": do, **order})

    def wait(self, tell: str, timeout_s: float, halt: Halt) -> Message:
        """Wait for the agent's answer.

        Raises:
            BadInputError: The agent cannot do that on its system.
            ClusterError: It failed, is gone, or has not answered in time.
            HaltedError: Nobody wants the answer any more.
        """
        deadline_s = time.monotonic() + timeout_s
        while (answer := self._take_answer()) is None:
            halt.check()
            if time.monotonic() > deadline_s:
                raise ClusterError(
                    f"The agent on {self.place} gave no answer in {timeout_s:g} s. "
                    "The node may be short of memory or processors."
                )
        if answer["tell"] == "failed":
            words = f"On {self.place}: {answer['message']}"
            if answer["is_bad_input"]:
                raise BadInputError(words)
            raise ClusterError(words, detail=answer["detail"])
        assert answer["tell"] == tell, answer
        return answer

    def start(
        self,
        task: Task,
        root: Path,
        files: GroupFiles,
        environment: Mapping[str, str],
        halt: Halt,
    ) -> tuple[BenchChannel, TaskProcess]:
        """Start a process there that waits for its start message.

        Args:
            task: Which task of the group.
            root: The run's folder.
            files: Names the group's files in it.
            environment: What the process is started with, if it is not forked.
            halt: Ends the wait for it.
        """
        self._mirror = self._mirror or Mirror(root)
        ours, theirs = socket.socketpair()
        channel = BenchChannel(ours)
        number = next(_NUMBERS)
        process = RemoteProcess(self._wire, number)
        self._seat = Seat(
            self._wire,
            process,
            theirs,
            root=root,
            mirror=self._mirror,
            log=files.name_log(task),
            stacks=files.name_stacks(task),
            notes=files.name_notes(task),
        )
        if self.lost:
            self._note_loss()
        self.ask(
            "fork",
            number=number,
            root=str(root),
            stacks=str(files.name_stacks(task).relative_to(root)),
            notes=str(files.name_notes(task).relative_to(root)),
            scratch=str(files.scratch.relative_to(root)),
            environment=dict(environment),
        )
        try:
            process.pid = int(self.wait("forked", _FORK_S, halt)["pid"])
        except BaseException:
            channel.close()
            raise
        return channel, process

    def rest(self) -> None:
        """End what is left of the group's task; the agent is free then."""
        self._seat = self._mirror = None
        self.ask("rest")

    def close(self) -> None:
        """End the agent, and everything that it started."""
        if os.getpid() == self._owner:  # a fork of the bench shares the connection
            self._wire.close()

    def _take_answer(self) -> Message | None:
        with contextlib.suppress(queue.Empty):
            return self._answers.get(timeout=_POLL_S)
        return None

    def _listen(self) -> None:
        try:
            while True:
                self._take(*self._wire.receive())
        except (OSError, EOFError, ValueError) as error:
            # Who says what cannot be is given up like one that says nothing.
            if getattr(error, "errno", None) in DISK_FULL:
                self.why = f"cannot be heard: {error}"
        self._wire.close()
        self.lost = True
        self._note_loss()
        self._answers.put(
            {
                "tell": "failed",
                "message": f"the agent {self.why.rstrip('.')}.",
                "detail": "",
                "is_bad_input": False,
            }
        )

    def _take(self, told: Message, body: bytes) -> None:
        if told["tell"] in ("prepared", "forked", "failed"):
            self._answers.put(told)
        elif told["tell"] == "gives_up":
            self.why = f"cannot go on: {told['why']}"
        elif told["tell"] == "note":
            self.log(f"On {self.place}: {told['text']}")
        elif (seat := self._seat) is not None and seat.number == told["number"]:
            seat.take(told, body)

    def _note_loss(self) -> None:
        if (seat := self._seat) is not None:
            seat.note_exit(ExitStatus(because=f"{self.place} {self.why}"))
