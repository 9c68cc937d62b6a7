"""The agent: starts one task at a time on its host, as the bench asks over TCP.

It lives as long as the bench's check, so its fork server imports TensorFlow once. With
its connection everything ends that it has started, and its folder goes.
"""

from __future__ import annotations

import contextlib
import os
import platform
import queue
import selectors
import signal
import socket
import threading
import traceback
from collections.abc import Callable, Sequence
from typing import NoReturn

from distbench.agent.door import Ticket
from distbench.agent.task import RemoteTask
from distbench.agent.versions import list_versions
from distbench.agent.wire import GREETING_S, Wire, greet_bench
from distbench.errors import BadInputError, ClusterError, find_advice
from distbench.gpus import VISIBLE
from distbench.launch.bind_filter import find_own_address
from distbench.launch.channel import EXIT_BENCH_GONE, Message
from distbench.launch.forkclient import ForkServer, ServerDiedError
from distbench.launch.local import find_server
from distbench.launch.ports import PortLease, lease_ports
from distbench.launch.rundir import RunDirectory
from distbench.launch.servers import close_fork_servers
from distbench.launch.watch import LOOK_S, measure_room


def run_agent(ticket: Ticket) -> NoReturn:
    """Do what the bench asks until it is gone or wants no more.

    Raises:
        OSError: The bench cannot be reached, or is not what it says.
    """
    # Ctrl-C reaches the bench alone, which then decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sock = socket.create_connection((ticket.host, ticket.port), GREETING_S)
    wire = greet_bench(sock, ticket.identity, bytes.fromhex(ticket.key))
    if ticket.gpus is not None:
        _take_gpus(ticket.gpus)
    with RunDirectory() as directory:
        address = ticket.address or wire.local_host
        agent = Agent(wire, directory, find_own_address(address))
        wire.send(
            {
                "tell": "hello",
                "node": ticket.node or platform.node(),
                "address": address,
                "pid": os.getpid(),
                "versions": list_versions(),
                "environment": dict(os.environ),
            }
        )
        agent.serve()


def _take_gpus(own: Sequence[int]) -> None:
    """Leave the GPUs of others alone."""
    visible = os.environ.get(VISIBLE)
    names = None if visible is None else visible.split(",")
    # Where all are shown they go by their numbers.
    os.environ[VISIBLE] = ",".join(names[n] if names else str(n) for n in own)


class Agent:
    """What an agent holds between two groups, and the loop that serves the bench.

    Args:
        wire: The connection to the bench.
        directory: What it writes to.
        host: The address that servers of tasks are kept on; `""` leaves them alone.
    """

    def __init__(self, wire: Wire, directory: RunDirectory, host: str) -> None:
        self._wire = wire
        self._host = host
        self._directory = directory
        self._selector = selectors.DefaultSelector()
        self._orders: queue.SimpleQueue[tuple[Message, bytes]] = queue.SimpleQueue()
        self._wake, self._waker = socket.socketpair()
        self._wake.setblocking(False)
        self._selector.register(self._wake, selectors.EVENT_READ, self._take_orders)
        self._server: ForkServer | None = None
        self._lease: PortLease | None = None
        self._task: RemoteTask | None = None
        self._prepared: Message = {}

    def serve(self) -> NoReturn:
        """Do what the bench asks, and tell it what happens."""
        threading.Thread(target=self._listen, name="bench", daemon=True).start()
        try:
            while True:
                for key, _ in self._selector.select(LOOK_S):
                    # What was done before may have ended what this is about. It has
                    # no descriptor then, and asking by it would raise.
                    if self._selector.get_map().get(key.fd) == key:
                        key.data()
                if self._task is not None:
                    self._task.look()
        except OSError as error:
            # The bench is gone, or this machine lacks something.
            with contextlib.suppress(OSError):
                why = f"{error}. {find_advice(error)}".rstrip()
                self._wire.send({"tell": "gives_up", "why": why})
        except BaseException:
            traceback.print_exc()
            raise
        finally:
            self._end()

    def _listen(self) -> None:
        """Take in orders; the main thread may be busy when the bench dies."""
        try:
            while True:
                self._orders.put(self._wire.receive())
                self._waker.send(b".")
        except (OSError, EOFError):
            self._end()

    def _end(self) -> NoReturn:
        """End everything that was started, and this process."""
        try:
            if self._task is not None:
                self._task.kill()
            close_fork_servers()
            self._directory.close()
        finally:
            os._exit(EXIT_BENCH_GONE)

    def _take_orders(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._wake.recv(1 << 12)
        while not self._orders.empty():
            order, body = self._orders.get()
            try:
                if order["do"] in ("prepare", "fork", "rest"):
                    do: Callable[[Message], None] = getattr(self, f"_{order['do']}")
                    do(order)
                elif self._task is not None:
                    self._task.obey(order, body)
            except (BadInputError, ClusterError) as error:
                self._wire.send(
                    {
                        "tell": "failed",
                        "message": str(error),
                        "detail": getattr(error, "detail", ""),
                        "is_bad_input": isinstance(error, BadInputError),
                    }
                )

    def _prepare(self, order: Message) -> None:
        """Have modules imported, and ports ready."""
        self._prepared = order
        self._server = self._find_server()
        self._lease = lease_ports(order["ports"])
        self._wire.send(
            {
                "tell": "prepared",
                "ports": self._lease.ports,
                "room_bytes": measure_room(),
            }
        )

    def _fork(self, order: Message) -> None:
        """Start a process that waits for its start message."""
        if self._task is None:
            self._task = RemoteTask(
                self._wire, self._selector, self._directory.path, order, self._host
            )
        try:
            pid = self._task.start(order["number"], self._server)
        except ServerDiedError:
            # It was killed after the last group; the new one has not been used.
            self._server = self._find_server()
            pid = self._task.start(order["number"], self._server)
        self._wire.send({"tell": "forked", "pid": pid})

    def _rest(self, _: Message) -> None:
        """The group has ended: nothing of it stays."""
        if self._task is not None:
            self._task.end()
            self._task = None
        if self._lease is not None:
            self._lease.close()
            self._lease = None

    def _find_server(self) -> ForkServer | None:
        order = self._prepared
        if self._server is not None:
            # It may have died, and have no number any more.
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(self._server)
        server = find_server(
            tuple(order["preload"]),
            order["environment"],
            start=order["start"],
            log=lambda text: self._wire.send({"tell": "note", "text": text}),
        )
        if server is not None:
            self._selector.register(server, selectors.EVENT_READ, self._read_exits)
        return server

    def _read_exits(self) -> None:
        if self._server is not None:
            self._server.read_exits()
            if self._server.dead:
                self._selector.unregister(self._server)
        if self._task is not None:
            self._task.check_exit()
