"""Starts tasks on this machine: the fork server, or a new process for each."""

from __future__ import annotations

import functools
import os
import socket
from collections.abc import Callable, Mapping

from distbench.cluster import Task
from distbench.errors import ClusterError
from distbench.gpus import assign_gpus, list_gpus
from distbench.launch.channel import BenchChannel, Message
from distbench.launch.engine import Engine, Places, Request, Room
from distbench.launch.forkclient import (
    ForkServer,
    ServerDiedError,
    UnfitError,
)
from distbench.launch.ports import PortLease, lease_ports
from distbench.launch.process import TaskProcess
from distbench.launch.rundir import GroupFiles
from distbench.launch.servers import get_fork_server
from distbench.launch.spawn import spawn_task
from distbench.launch.surroundings import Start, choose_start
from distbench.launch.tf_config import LOOPBACK, assign_addresses, count_ports
from distbench.launch.watch import Watch, measure_room
from distbench.machine import SERVER_BYTES, TASK_BYTES, Machine, inspect_machine

REPLACED = "The fork server had died or was stopped; another one is started."


class LocalEngine(Engine):
    """The machine that the bench runs on."""

    @functools.cached_property
    def _gpus(self) -> tuple[str, ...]:
        """Asked once: each cluster that starts needs them."""
        return list_gpus()

    def inspect(self) -> Machine:
        """What this machine has."""
        return inspect_machine()

    def find_room(self) -> Room:
        """As many tasks as there is memory for, each with one device beside it.

        All clusters count their GPUs from the first one: one at a time may have any.
        """
        free_bytes = measure_room() - SERVER_BYTES
        return Room(tasks=free_bytes // (2 * TASK_BYTES), gpu_tasks=0)

    def find_places(self, request: Request) -> Places:
        """A port for each task, and a fork server that is ready."""
        server = find_server(
            request.preload,
            request.environment,
            start=request.start,
            log=request.log,
        )
        gpus = self._gpus if request.spec.device == "gpu" else ()
        lease = lease_ports(count_ports(request.spec))
        return _LocalPlaces(request, server, lease, gpus)


class _LocalPlaces(Places):
    def __init__(
        self,
        request: Request,
        server: ForkServer | None,
        lease: PortLease,
        gpus: tuple[str, ...],
    ) -> None:
        self._request = request
        self._lease = lease
        self._gpus = gpus
        self.server = server
        self.addresses = assign_addresses(request.spec, lease.ports)

    def find_environment(self, task: Task) -> Mapping[str, str]:
        spec = self._request.spec
        return {**os.environ, **assign_gpus(spec, task, self._gpus)}

    def start(
        self, task: Task, files: GroupFiles, message: Message
    ) -> tuple[BenchChannel, TaskProcess]:
        with files.name_log(task).open("ab") as log:
            environment = message["environment"]
            return start_process(self.server, log.fileno(), environment, LOOPBACK)

    def make_watch(self) -> Watch:
        request = self._request
        return Watch(
            each_bytes=request.memory_bytes,
            room_bytes=measure_room() // request.sharers,
        )

    def close(self) -> None:
        self._lease.close()


def find_server(
    preload: tuple[str, ...],
    environment: Mapping[str, str],
    *,
    start: Start | None,
    log: Callable[[str], None],
) -> ForkServer | None:
    """The fork server to use, or None where tasks are spawned.

    Raises:
        BadInputError: This system cannot start tasks so.
        ClusterError: The server must not fork, and has to.
    """
    if choose_start(start) == "spawn":
        return None
    server = get_fork_server(preload, environment)
    try:
        try:
            server.wait_ready(log)
        except ServerDiedError:
            # It was killed while it was importing; one that dies again is an error.
            log(REPLACED)
            server = get_fork_server(preload, environment)
            server.wait_ready(log)
    except UnfitError as error:
        if start == "fork":
            raise ClusterError(
                f"The fork server must not fork: {error}. Use start='spawn'."
            ) from error
        log(f"Tasks are spawned, which is slower: the fork server says that {error}.")
        return None
    return server


def start_process(
    server: ForkServer | None, log_fd: int, environment: Mapping[str, str], host: str
) -> tuple[BenchChannel, TaskProcess]:
    """A process of this machine that waits for its start message.

    Args:
        server: Who forks it; None spawns it.
        log_fd: Where its output goes.
        environment: What it is spawned with.
        host: The address that its servers are kept on; `""` leaves them alone.
    """
    ours, theirs = socket.socketpair()
    try:
        with theirs:
            process: TaskProcess
            if server is not None:
                process = server.fork(theirs.fileno(), log_fd, host)
            else:
                process = spawn_task(theirs.fileno(), log_fd, environment, host)
    except BaseException:
        ours.close()
        raise
    return BenchChannel(ours), process
