"""The agents that run the tasks of one group."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import itemgetter

from distbench.agent.remote import RemoteAgent
from distbench.agent.seat import RemoteProcess
from distbench.cluster import Task
from distbench.launch.channel import BenchChannel, Message
from distbench.launch.engine import Places, Request
from distbench.launch.member import Member, Trouble
from distbench.launch.process import TaskProcess
from distbench.launch.rundir import GroupFiles
from distbench.launch.tf_config import assign_addresses
from distbench.launch.watch import Look, Stretch, Watch

_TAKEN_ALONG = ("DISTBENCH_", "GRPC_", "KERAS_", "NCCL_", "TF_", "XLA_")
"""Beginnings of the variables of the bench that tasks see on every node.

The others are the node's own: paths, and the devices that the engine gave the task.
"""


class AgentPlaces(Places):
    """A place for each task of a group.

    Args:
        request: What the group needs.
        agents: One for each task.
        prepared: What they answered when they were asked to prepare.
        give_back: Called when the group has ended.
    """

    def __init__(
        self,
        request: Request,
        agents: Sequence[RemoteAgent],
        prepared: Sequence[Message],
        give_back: Callable[[], None],
    ) -> None:
        self._request = request
        tasks = request.spec.tasks
        self._agents = dict(zip(tasks, agents, strict=True))
        self._rooms = {
            agent.address: int(answer["room_bytes"]) // request.sharers
            for agent, answer in zip(agents, prepared, strict=True)
        }
        self._give_back: Callable[[], None] | None = give_back
        self.addresses = assign_addresses(
            request.spec,
            [port for answer in prepared for port in answer["ports"]],
            [agent.address for agent in agents],
        )

    def find_environment(self, task: Task) -> Mapping[str, str]:
        """The node's variables, and those of the bench that change what is computed."""
        along = {k: v for k, v in os.environ.items() if k.startswith(_TAKEN_ALONG)}
        return {**self._agents[task].environment, **along}

    def start(
        self, task: Task, files: GroupFiles, message: Message
    ) -> tuple[BenchChannel, TaskProcess]:
        """A process on the task's node that waits for the start message."""
        request = self._request
        return self._agents[task].start(
            task, request.directory.path, files, message["environment"], request.halt
        )

    def make_watch(self) -> NodeWatches:
        """Looks at each node by itself: its tasks share its memory."""
        nodes = {task: agent.address for task, agent in self._agents.items()}
        return NodeWatches(self._request, nodes, self._rooms)

    def close(self) -> None:
        """Let the agents rest; what they still hold of the group goes."""
        give_back, self._give_back = self._give_back, None
        if give_back is not None:
            give_back()


class NodeWatches:
    """One watch for each node, which sees what agents tell.

    Args:
        request: What tasks may take.
        nodes: The address of each task's node.
        rooms: What the tasks of a node may take together, in bytes, by address.
    """

    def __init__(
        self, request: Request, nodes: Mapping[Task, str], rooms: Mapping[str, int]
    ) -> None:
        self._nodes = nodes
        self._looks: dict[tuple[str, int], Look] = {}
        self._watches = {
            node: Watch(
                each_bytes=request.memory_bytes,
                room_bytes=room_bytes,
                look=partial(self._look, node),
            )
            for node, room_bytes in rooms.items()
        }

    @property
    def computing(self) -> Stretch:
        """When a task computed last, as far as looks tell."""
        return max((w.computing for w in self._watches.values()), key=itemgetter(1))

    def find_trouble(self, members: Iterable[Member]) -> list[tuple[Member, Trouble]]:
        """Look at tasks, if it is time: who has to be ended, and why."""
        members = tuple(members)
        for member in members:
            assert isinstance(member.process, RemoteProcess)
            if (look := member.process.take_look()) is not None:
                key = (self._nodes[member.task], member.process.pid)
                self._looks[key] = look
        return [
            trouble
            for node, watch in self._watches.items()
            for trouble in watch.find_trouble(
                m for m in members if self._nodes[m.task] == node
            )
        ]

    def _look(self, node: str, pid: int) -> Look | None:
        # Once: found twice in one look, a task would count as stopped.
        return self._looks.pop((node, pid), None)
