"""What engines with agents share: all but how an agent gets onto a node."""

from __future__ import annotations

import ipaddress
import queue
import threading
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Protocol

from distbench.agent.door import Door, Ticket
from distbench.agent.places import AgentPlaces
from distbench.agent.remote import RemoteAgent
from distbench.agent.versions import find_difference, list_versions
from distbench.agent.wire import Wire
from distbench.errors import BadInputError, ClusterError
from distbench.launch.channel import Message
from distbench.launch.closing import Closing
from distbench.launch.engine import Engine, Places, Request
from distbench.launch.forkclient import READY_TIMEOUT_S
from distbench.launch.halt import Halt
from distbench.launch.tf_config import count_ports

CPUS_PER_TASK = 2
"""A parameter server with one thread between operations waits for itself for ever."""
QUEUE_S = 24 * 3600.0
"""How long it is waited for nodes."""
_ARRIVE_S = 120.0
"""How long an agent may take from its start to its first word: Python's own start, on a
file system that many nodes share."""
_END_S = 3.0
"""How long an agent may take to end what it has started."""
_POLL_S = 0.2
_QUIET_S = 5.0
_TOLD_S = 10.0


class Starting(Protocol):
    """An agent that an engine has started."""

    def find_end(self) -> str | None:
        """How it ended, in words with what it printed; None while it runs."""
        ...

    def close(self) -> None:
        """End it, if it has not ended."""
        ...

    def release(self, *, is_lost: bool) -> None:
        """Its place and its GPUs are free again; the engine asks for one at a time.

        Args:
            is_lost: Whether it ended unasked. Others are placed elsewhere, if they can.
        """
        ...


class Waiting:
    """Tells now and then what is waited for, and gives up in the end.

    Args:
        log: Told what the user should know.
        limit_s: How long it may take from now on.
        quiet_s: How long nothing is told.
    """

    def __init__(
        self, log: Callable[[str], None], limit_s: float, quiet_s: float
    ) -> None:
        self._log = log
        self._tell_s = time.monotonic() + quiet_s
        self._deadline_s = time.monotonic() + limit_s

    def look(self, what: str, late: str) -> None:
        """Tell what is still missing, or raise that it is too late, if it is time."""
        if time.monotonic() > self._tell_s:
            self._log(f"waiting for {what}")
            self._tell_s = time.monotonic() + _TOLD_S
        if time.monotonic() > self._deadline_s:
            raise ClusterError(late)


class AgentEngine(Closing, Engine):
    """Keeps agents from one group to the next, each for one task at a time.

    Args:
        host: The bench's address on the engine's interface; agents connect to it.
        allow_public: Whether nodes may have addresses that the world can reach.
        log: Told what the user should know.
    """

    shares_gpus = False  # agents have theirs to themselves

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
        # Several groups may look for places. What takes its time is done without it.
        self._lock = threading.Lock()
        self._started: dict[str, Starting] = {}
        self._agents: dict[str, RemoteAgent] = {}
        self._refused: dict[str, BadInputError | ClusterError] = {}
        self._shapes: dict[str, int] = {}
        self._busy: set[str] = set()
        self._is_closed = False

    @abstractmethod
    def start_agent(self, door: Door, gpus: int) -> tuple[Ticket, Starting]:
        """Start an agent on a node; does not wait for it, and is called once at a time.

        Args:
            door: Issues its ticket, with what is known of the node.
            gpus: How many GPUs it needs for itself.
        """

    def find_places(self, request: Request) -> Places:
        """Agents that have imported all, and have a port each.

        Raises:
            BadInputError: Tasks cannot be started so, or nodes are public.
            ClusterError: There are not so many nodes, or one of them failed.
            HaltedError: The places are not wanted any more.
        """
        spec = request.spec
        # Chief and parameter servers train on nothing.
        shapes = [
            spec.gpus_per_task if task.role == "worker" else 0 for task in spec.tasks
        ]
        names = self._take(shapes, request.halt)
        try:
            agents = [self._agents[name] for name in names]
            for agent in agents:
                agent.log = request.log
                agent.ask(
                    "prepare",
                    preload=request.preload,
                    environment=dict(request.environment),
                    start=request.start,
                    ports=int(count_ports(spec) > 0),
                )
            prepared = [
                agent.wait("prepared", READY_TIMEOUT_S, request.halt)
                for agent in agents
            ]
        except BaseException:
            # An answer may still come, which the next question must not get.
            self._drop(names)
            raise
        return AgentPlaces(request, agents, prepared, lambda: self._give_back(names))

    def close(self) -> None:
        """End all agents, and all that they started."""
        with self._lock:
            self._is_closed = True
        self._door.close()
        self._drop(tuple(self._started))

    def _take(self, shapes: list[int], halt: Halt) -> list[str]:
        """Agents for tasks that need so many GPUs each: free ones, else new ones."""
        self._drop(self._list_lost())
        names, unwanted = self._take_free(shapes)
        try:
            self._drop(unwanted)
            for place, gpus in enumerate(shapes):
                names[place] = names[place] or self._start(gpus)
            self._wait_arrived(names, halt)
        except BaseException:
            self._drop([n for n in names if n and n not in self._agents])
            self._give_back(names)
            raise
        return names

    def _list_lost(self) -> list[str]:
        """Agents that have ended; those of a group it has to give back first."""
        with self._lock:
            return [
                name
                for name, agent in self._agents.items()
                if agent.lost and name not in self._busy
            ]

    def _take_free(self, shapes: list[int]) -> tuple[list[str], list[str]]:
        """Agents without a task: one for each shape, or an empty name.

        And those whose GPUs a new agent may need. Neighbours are on different nodes.
        """
        with self._lock:
            seen: Counter[str] = Counter()
            rank: dict[str, int] = {}
            for name, agent in self._agents.items():
                rank[name] = seen[agent.address]
                seen[agent.address] += 1
            free = [name for name in rank if name not in self._busy]
            free.sort(key=lambda name: rank[name])
            taken: list[str] = []
            for gpus in shapes:
                found = next((n for n in free if self._shapes[n] == gpus), "")
                taken.append(found)
                if found:
                    free.remove(found)
            unwanted = [n for n in free if "" in taken and self._shapes[n]]
            self._busy.update(taken, unwanted)
            return taken, unwanted

    def _start(self, gpus: int) -> str:
        with self._lock:
            if self._is_closed:
                raise ClusterError("The engine has been closed.")
            ticket, started = self.start_agent(self._door, gpus)
            name = ticket.identity
            self._started[name] = started
            self._shapes[name] = gpus
            self._busy.add(name)
            return name

    def _wait_arrived(self, names: list[str], halt: Halt) -> None:
        waiting = Waiting(self.log, _ARRIVE_S, _QUIET_S)
        while missing := [name for name in names if name not in self._agents]:
            halt.check()
            for name in missing:
                if (refused := self._refused.get(name)) is not None:
                    raise refused
            try:
                # It may be an agent of another group, which waits as well.
                self._welcome(*self._door.arrived.get(timeout=_POLL_S))
                continue
            except queue.Empty:
                pass
            for name in missing:
                if (ended := self._started[name].find_end()) is not None:
                    raise ClusterError(f"An agent did not start: {ended}")
            what = f"{len(missing)} of {len(names)} agents"
            waiting.look(
                what,
                f"{what} have not reached the bench at {self._door.host} within "
                f"{_ARRIVE_S:g} s. Can the nodes reach that address, and is distbench "
                "installed there?",
            )

    def _welcome(self, name: str, wire: Wire) -> None:
        try:
            hello, _ = wire.receive()
            self._check(hello)
        except (OSError, EOFError) as error:
            wire.close()
            self._refused[name] = ClusterError(
                f"An agent came and went at once: {error}"
            )
        except (BadInputError, ClusterError) as error:
            wire.close()
            self._refused[name] = error
        else:
            with self._lock:
                if name in self._started:
                    self._agents[name] = RemoteAgent(wire, hello)
                    return
            wire.close()  # it comes too late: nobody waits for it any more

    def _check(self, hello: Message) -> None:
        """Refuse an agent that cannot be used."""
        who = f"Node {hello['node']} ({hello['address']})"
        self._refuse_public(hello["address"], who)
        if other := find_difference(list_versions(), hello["versions"]):
            raise ClusterError(
                f"{who} has {other}. Install the same versions on all nodes."
            )

    def _give_back(self, names: list[str]) -> None:
        for name in names:
            if (agent := self._agents.get(name)) is not None:
                agent.rest()
        with self._lock:
            self._busy.difference_update(names)

    def _drop(self, names: Iterable[str]) -> None:
        """End agents that are lost, have not come, or are not needed any more."""
        dropped: list[tuple[str, Starting, bool]] = []
        until_s = time.monotonic() + _END_S  # for all of them
        for name in names:
            with self._lock:
                agent = self._agents.pop(name, None)
                started = self._started.pop(name, None)
            if started is None:
                continue  # somebody else has ended it
            is_lost = agent is None or agent.lost
            if agent is not None:
                if is_lost:
                    said = _wait_for_end(started, until_s)
                    self.log(f"{agent.place} {agent.why}: {said}")
                agent.close()
            dropped.append((name, started, is_lost))
        # All have been told by now, and end at the same time.
        for name, started, is_lost in dropped:
            started.close()
            with self._lock:
                started.release(is_lost=is_lost)
                self._shapes.pop(name, None)
                self._refused.pop(name, None)
                self._busy.discard(name)

    def _refuse_public(self, address: str, who: str) -> None:
        if ipaddress.ip_address(address).is_global and not self._allow_public:
            raise BadInputError(
                f"{who} has the public address {address}, and what travels between "
                "tasks is neither encrypted nor authenticated. Use a private network, "
                "or allow it with --allow-public."
            )


def _wait_for_end(started: Starting, until_s: float) -> str:
    """How an agent ended whose connection has."""
    while (said := started.find_end()) is None:
        if time.monotonic() > until_s:
            return "its agent has not ended"
        time.sleep(_POLL_S)
    return said
