"""Where agents knock: one listening socket of the bench, on one interface."""

from __future__ import annotations

import contextlib
import os
import queue
import secrets
import socket
import threading
from dataclasses import dataclass

from distbench.agent.wire import Wire, greet_agent

TICKET = "DISTBENCH_AGENT"
"""The environment variable that tells an agent whom to ask for work.

Of all that a process is started with, only its owner can read its variables.
"""
_KEY_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """What an agent needs to reach the bench, once.

    Attributes:
        host: The bench's address.
        port: Its port.
        identity: Names the agent.
        key: Proves to either side that the other one is who it says, in hexadecimal.
        address: The node's address, under which its peers find it; empty is the
            interface by which it reaches the bench.
        node: The engine's name of the node; empty is its host's own.
        gpus: Which of the GPUs that the agent sees are its own; None is all.
    """

    host: str
    port: int
    identity: str
    key: str
    address: str = ""
    node: str = ""
    gpus: tuple[int, ...] | None = None


class Door:
    """Listens for agents that have a ticket, and lets each in once.

    Args:
        host: The address of the interface to listen on.
    """

    def __init__(self, host: str) -> None:
        self.host = host
        self._listener = socket.create_server((host, 0), backlog=128)
        self._port = int(self._listener.getsockname()[1])
        self._lock = threading.Lock()
        self._keys: dict[str, str] = {}
        self.arrived: queue.SimpleQueue[tuple[str, Wire]] = queue.SimpleQueue()
        self._owner = os.getpid()
        threading.Thread(target=self._listen, name="door", daemon=True).start()

    def issue(
        self,
        *,
        address: str = "",
        node: str = "",
        gpus: tuple[int, ...] | None = None,
    ) -> Ticket:
        """A ticket for one more agent; see `Ticket` for the arguments."""
        ticket = Ticket(
            host=self.host,
            port=self._port,
            identity=secrets.token_hex(8),
            key=secrets.token_hex(_KEY_BYTES),
            address=address,
            node=node,
            gpus=gpus,
        )
        with self._lock:
            self._keys[ticket.identity] = ticket.key
        return ticket

    def close(self) -> None:
        """Let nobody in any more."""
        with self._lock:
            self._keys.clear()
        if os.getpid() == self._owner:  # a fork of the bench shares the socket
            with contextlib.suppress(OSError):
                # Wakes the thread that listens.
                self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _listen(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            # In a thread of its own: a stranger who says nothing holds nobody up.
            threading.Thread(target=self._greet, args=(sock,), daemon=True).start()

    def _greet(self, sock: socket.socket) -> None:
        try:
            self.arrived.put(greet_agent(sock, self._take_key))
        except OSError:
            sock.close()

    def _take_key(self, identity: str) -> bytes | None:
        with self._lock:
            key = self._keys.pop(identity, None)
        return None if key is None else bytes.fromhex(key)
