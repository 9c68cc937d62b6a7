"""What engines with agents share: all but how an agent gets onto a node."""

from __future__ import annotations

import ipaddress
import queue
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Protocol

from distbench.agent.door import Door, Issue, Ticket
from distbench.agent.places import AgentPlaces
from distbench.agent.remote import RemoteAgent
from distbench.agent.versions import find_difference, list_versions
from distbench.agent.wire import Wire
from distbench.errors import BadInputError, ClusterError
from distbench.launch.engine import Engine, Places, Request
from distbench.launch.forkclient import READY_TIMEOUT_S
from distbench.launch.tf_config import count_ports

_ARRIVE_S = 120.0
"""How long an agent may take from its start to its first word: Python's own start, on a
file system that many nodes share."""
_POLL_S = 0.2
_TOLD_S = 5.0


class Starting(Protocol):
    """An agent that an engine has started."""

    def find_end(self) -> str | None:
        """How it ended, in words with what it printed; None while it runs."""
        ...

    def close(self) -> None:
        """End it, if it has not ended."""
        ...


class AgentEngine(Engine):
    """Keeps agents from one group to the next, each for one task at a time.

    Args:
        host: The bench's address on the engine's interface; agents connect to it.
        allow_public: Whether nodes may have addresses that the world can reach.
        log: Told what the user should know.
    """

    def __init__(
        self,
        host: str,
        *,
        allow_public: bool = False,
        log: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._allow_public = allow_public
        self.log = log
        self._refuse_public(host, "The bench")
        self._door = Door(host)
        self._started: dict[str, Starting] = {}
        self._agents: dict[str, RemoteAgent] = {}
        self._shapes: dict[str, int] = {}
        self._busy: set[str] = set()

    @abstractmethod
    def start_agent(self, issue: Issue, gpus: int) -> tuple[Ticket, Starting]:
        """Start an agent on a node; does not wait for it.

        Args:
            issue: Gives its ticket; called with what is known of the node.
            gpus: How many GPUs it needs for itself.
        """

    def find_places(self, request: Request) -> Places:
        """Agents that have imported all, and have a port each.

        Raises:
            BadInputError: Tasks cannot be started so, or nodes are public.
            ClusterError: There are not so many nodes, or one of them failed.
        """
        spec = request.spec
        gpus = spec.replicas_per_worker if spec.device == "gpu" else 0
        # Chief and parameter servers train on nothing.
        shapes = [gpus if task.role == "worker" else 0 for task in spec.tasks]
        names = self._take(shapes)
        try:
            agents = [self._agents[name] for name in names]
            for agent in agents:
                agent.log = request.log
                agent.ask(
                    "prepare",
                    preload=request.preload,
                    environment=dict(request.environment),
                    start=request.start,
                    check=request.check,
                    ports=int(count_ports(spec) > 0),
                )
            prepared = [agent.wait("prepared", READY_TIMEOUT_S) for agent in agents]
        except BaseException:
            # An answer may still come, which the next question must not get.
            for name in names:
                self._drop(name)
            raise
        return AgentPlaces(request, agents, prepared, lambda: self._give_back(names))

    def close(self) -> None:
        """End all agents, and all that they started."""
        self._door.close()
        for name in list(self._started):
            self._drop(name)

    def __enter__(self) -> AgentEngine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _take(self, shapes: list[int]) -> list[str]:
        """Agents for tasks that need so many GPUs each: free ones, else new ones."""
        for name in [n for n in self._agents if self._agents[n].lost]:
            said = self._started[name].find_end() or "its agent has not ended"
            self.log(f"{self._agents[name].place} is gone: {said}")
            self._drop(name)
        free = self._list_free()
        taken: list[str | None] = []
        for gpus in shapes:
            found = next((n for n in free if self._shapes[n] == gpus), None)
            taken.append(found)
            if found is not None:
                free.remove(found)
        if None in taken:
            for name in free:
                if self._shapes[name]:
                    self._drop(name)  # somebody else may need its GPUs
        names: list[str] = []
        try:
            for one, gpus in zip(taken, shapes, strict=True):
                names.append(one or self._start(gpus))
            self._busy.update(names)
            self._wait_arrived(names)
        except BaseException:
            for name in set(names) - set(self._agents):
                self._drop(name)
            self._busy.difference_update(names)
            raise
        return names

    def _list_free(self) -> list[str]:
        """Agents without a task; neighbours in the list are on different nodes."""
        seen: Counter[str] = Counter()
        rank: dict[str, int] = {}
        for name, agent in self._agents.items():
            rank[name] = seen[agent.address]
            seen[agent.address] += 1
        free = [name for name in self._agents if name not in self._busy]
        return sorted(free, key=lambda name: rank[name])

    def _start(self, gpus: int) -> str:
        ticket, started = self.start_agent(self._door.issue, gpus)
        self._started[ticket.identity] = started
        self._shapes[ticket.identity] = gpus
        return ticket.identity

    def _wait_arrived(self, names: list[str]) -> None:
        deadline_s = time.monotonic() + _ARRIVE_S
        tell_s = time.monotonic() + _TOLD_S
        while missing := [name for name in names if name not in self._agents]:
            try:
                self._welcome(*self._door.arrived.get(timeout=_POLL_S))
                continue
            except queue.Empty:
                pass
            for name in missing:
                if (ended := self._started[name].find_end()) is not None:
                    raise ClusterError(f"An agent did not start: {ended}")
            now_s = time.monotonic()
            if now_s > tell_s:
                self.log(f"waiting for {len(missing)} of {len(names)} agents")
                tell_s = now_s + _TOLD_S
            if now_s > deadline_s:
                raise ClusterError(
                    f"{len(missing)} of {len(names)} agents have not reached the bench "
                    f"at {self._door.host} within {_ARRIVE_S:g} s. Can the nodes reach "
                    "that address, and is distbench installed there?"
                )

    def _welcome(self, name: str, wire: Wire) -> None:
        try:
            hello, _ = wire.receive()
            if name not in self._started:
                wire.close()  # it comes too late: nobody waits for it any more
                return
            who = f"Node {hello['node']} ({hello['address']})"
            self._refuse_public(hello["address"], who)
            if other := find_difference(list_versions(), hello["versions"]):
                raise ClusterError(
                    f"{who} has {other}. Install the same versions on all nodes."
                )
        except (OSError, EOFError) as error:
            raise ClusterError(f"An agent came and went at once: {error}") from error
        except BaseException:
            wire.close()
            raise
        self._agents[name] = RemoteAgent(wire, hello)

    def _give_back(self, names: list[str]) -> None:
        for name in names:
            if name in self._agents:
                self._agents[name].rest()
        self._busy.difference_update(names)

    def _drop(self, name: str) -> None:
        self._busy.discard(name)
        self._shapes.pop(name, None)
        if (agent := self._agents.pop(name, None)) is not None:
            agent.close()
        if (started := self._started.pop(name, None)) is not None:
            started.close()

    def _refuse_public(self, address: str, who: str) -> None:
        if ipaddress.ip_address(address).is_global and not self._allow_public:
            raise BadInputError(
                f"{who} has the public address {address}, and what travels between "
                "tasks is neither encrypted nor authenticated. Use a private network, "
                "or allow it with --allow-public."
            )
