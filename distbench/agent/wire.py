"""Frames between the bench and an agent: a JSON header and bytes, over TCP.

Both sides prove that they know the agent's one-time key before anything is read or
done; what follows is neither encrypted nor signed, as TensorFlow's own traffic is not.

Bench to agent, by the header's `do`:
`prepare` (import modules, lease ports), `fork` (start a process), `say` (a message for
the task), `file` (one that the task will read), `signal`, `hang_up` (close the task's
channel), `rest` (end the task, forget its files).

Agent to bench, by the header's `tell`: `hello`, `prepared`, `failed`, `forked`, `say`,
`log`, `stacks`, `notes`, `file`, `look`, `note`, `hung_up` (the task's channel has
ended), `exited` and, as its last words, `gives_up`.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge

from distbench.launch.channel import Message

GREETING_S = 10.0
"""How long either side may take to prove itself."""
GONE_S = 7
"""After so many seconds without a sign of an agent's machine it counts as gone.

The kernels exchange the signs, so a process that is busy gives them too, and one that
is stopped as long as what is sent to it has room.
"""
SEND_S = 30
"""How long nothing may be read of what is sent. A bench that is stopped (Ctrl-Z) reads
nothing, so an agent counts its machine as gone after that time as well."""
_IDENTITY_BYTES = 64

_SIGNS = {
    "TCP_KEEPIDLE": 2,
    "TCP_KEEPINTVL": 1,
    "TCP_KEEPCNT": GONE_S - 2,
}
_TIMEVAL = struct.Struct("ll")
_SIZE = struct.Struct("!I")


class Wire:
    """One side of a connection; any thread may send, one thread receives."""

    def __init__(self, sock: socket.socket, connection: Connection) -> None:
        self._sock = sock
        self._connection = connection
        self._lock = threading.Lock()

    @property
    def local_host(self) -> str:
        """The address of this side's own interface."""
        return str(self._sock.getsockname()[0])

    def send(self, header: Message, body: bytes = b"") -> None:
        """Send a frame.

        Raises:
            OSError: The other side is gone, or has not read for long.
        """
        head = json.dumps(header).encode()
        with self._lock:
            try:
                self._connection.send_bytes(
                    b"".join((_SIZE.pack(len(head)), head, body))
                )
            except BlockingIOError as error:
                # Half a frame may have gone: nothing can follow it.
                self.close()
                raise ConnectionError(f"nothing was read for {SEND_S} s") from error

    def receive(self) -> tuple[Message, bytes]:
        """Wait for a frame: its header and its bytes.

        Raises:
            EOFError: The other side has closed the connection.
            OSError: The connection broke.
        """
        frame = self._connection.recv_bytes()
        (size,) = _SIZE.unpack_from(frame)
        end = _SIZE.size + size
        return json.loads(frame[_SIZE.size : end]), frame[end:]

    def close(self) -> None:
        """End the connection, also for a thread that waits in `receive`."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()


def greet_bench(sock: socket.socket, identity: str, key: bytes) -> Wire:
    """The agent's half of the greeting; either side proves that it has the key.

    Raises:
        ConnectionError: The other side is not the bench, or gone.
    """
    with _greeting(sock, SEND_S) as connection:
        connection.send_bytes(identity.encode())
        answer_challenge(connection, key)
        deliver_challenge(connection, key)
    return Wire(sock, connection)


def greet_agent(
    sock: socket.socket, take_key: Callable[[str], bytes | None]
) -> tuple[str, Wire]:
    """The bench's half of the greeting.

    Args:
        sock: A connection that somebody has made.
        take_key: Gives the key of an identity once, and None for a stranger's.

    Raises:
        ConnectionError: The other side is no agent that was expected, or gone.
    """
    with _greeting(sock, GONE_S) as connection:
        identity = connection.recv_bytes(_IDENTITY_BYTES).decode("ascii")
        key = take_key(identity)
        if key is None:
            raise ConnectionError("nobody of that name is expected")
        deliver_challenge(connection, key)
        answer_challenge(connection, key)
    return identity, Wire(sock, connection)


@contextlib.contextmanager
def _greeting(sock: socket.socket, gone_s: int) -> Iterator[Connection]:
    """A connection with a deadline for the greeting, and none for what follows.

    Args:
        sock: The socket.
        gone_s: How long the other's machine may acknowledge nothing that is sent, nor
            have room for it.
    """
    sock.setblocking(True)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in {**_SIGNS, "TCP_USER_TIMEOUT": gone_s * 1000}.items():
        if hasattr(socket, name):  # macOS lacks some
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIMEVAL.pack(SEND_S, 0))
    _limit_receiving(sock, GREETING_S)
    # A descriptor of its own: either side closes what it opened.
    connection = Connection(os.dup(sock.fileno()))
    try:
        yield connection
    except (AuthenticationError, AssertionError, EOFError, ValueError) as error:
        connection.close()
        raise ConnectionError(f"the greeting failed: {error}") from error
    except BaseException:
        connection.close()
        raise
    _limit_receiving(sock, 0)


def _limit_receiving(sock: socket.socket, timeout_s: float) -> None:
    sock.setsockopt(
        socket.SOL_SOCKET, socket.SO_RCVTIMEO, _TIMEVAL.pack(int(timeout_s), 0)
    )
