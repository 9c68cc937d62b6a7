"""Who starts the tasks of a group, and where: the one part that differs by engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from distbench.cluster import ClusterSpec, Task
from distbench.launch.channel import BenchChannel, Message
from distbench.launch.forkclient import ForkServer
from distbench.launch.halt import Halt
from distbench.launch.process import TaskProcess
from distbench.launch.rundir import GroupFiles, RunDirectory
from distbench.launch.surroundings import Start
from distbench.launch.watch import Watcher
from distbench.machine import Machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A group of tasks that is to be started.

    Attributes:
        spec: The resolved cluster spec.
        directory: Where logs, stacks and results go.
        entry: `module:function`, called in each task with a `TaskChannel` and a
            `TaskContext`; see `distbench.launch.task`.
        preload: Modules that are imported before tasks are forked.
        environment: Variables to set, seen by the imports as well.
        start: `fork` or `spawn`; None takes what is safe there.
        memory_bytes: How much memory each task may take; None lets the tasks of a
            machine take together what it can spare.
        sharers: How many groups there are at one time at most, which share that.
        log: Told what the user should know.
        halt: Ends whoever waits.
    """

    spec: ClusterSpec
    directory: RunDirectory
    entry: str
    preload: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    start: Start | None = None
    memory_bytes: int | None = None
    sharers: int = 1
    log: Callable[[str], None] = lambda _: None
    halt: Halt = field(default_factory=Halt)


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """How many tasks there are, or may be, at one time.

    Attributes:
        tasks: Those of clusters; the one device beside a cluster does not count.
        gpu_tasks: Those of them that have GPUs.
    """

    tasks: int
    gpu_tasks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What a check needs at most at one time.

    Attributes:
        tasks: How many tasks its clusters have.
        least: How many the largest one has: fewer are of no use.
        gpus_per_task: How many GPUs each of their workers has for itself.
    """

    tasks: int
    least: int
    gpus_per_task: int

    def limit(self, places: int) -> Demand:
        """This demand for so many tasks at most, if the largest cluster fits."""
        return replace(self, tasks=max(self.least, min(self.tasks, places)))


class Places(ABC):
    """Where the tasks of one group run: found before any of them starts.

    Attributes:
        addresses: `host:port` of every task by role; empty for one process alone.
        server: The fork server of this machine that tells of exits, if there is one.
    """

    addresses: Mapping[str, tuple[str, ...]]
    server: ForkServer | None = None

    @abstractmethod
    def find_environment(self, task: Task) -> Mapping[str, str]:
        """The variables that a task starts from, before the bench sets its own."""

    @abstractmethod
    def start(
        self, task: Task, files: GroupFiles, message: Message
    ) -> tuple[BenchChannel, TaskProcess]:
        """A process that waits for the start message, which the caller sends.

        Called a second time for a task that has died, it starts the task again.
        """

    @abstractmethod
    def make_watch(self) -> Watcher:
        """Who looks for trouble that no event tells of."""

    @abstractmethod
    def close(self) -> None:
        """Give the places back; the tasks have been ended. May be called twice."""


class Engine(ABC):
    """Finds places for groups of tasks; any thread may ask.

    Attributes:
        shares_gpus: Whether one device may compute on a GPU of a cluster beside it.
    """

    shares_gpus: bool = True

    @abstractmethod
    def inspect(self) -> Machine:
        """What clusters may use, all machines together."""

    @abstractmethod
    def find_room(self) -> Room:
        """For how many tasks there is room at one time."""

    @abstractmethod
    def find_places(self, request: Request) -> Places:
        """Find a place for every task.

        Raises:
            BadInputError: Tasks cannot be started so.
            ClusterError: There is no room for them.
        """
