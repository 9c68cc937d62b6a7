"""Answers the binds of tasks that have a filter: see `distbench.launch.bind_filter`.

The warden is an ancestor of the task, which Linux lets look into it, and never the task
itself: the thread that calls bind(2) may hold what the warden needs, such as the
interpreter's lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from distbench.launch.bind_filter import find_calls, install_bind_filter

_HOST_BYTES = 64
_CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
"""macOS does not have it; no filter ever arrives there."""
_RECEIVE, _SEND, _IS_VALID = 0xC0502100, 0xC0182101, 0x40082102
_NOTICE = struct.Struct("QI4xi12xQQQQ16x")
"""Of struct seccomp_notif: its number, the thread, the call and four arguments."""
_ANSWER = struct.Struct("QqiI")
_CONTINUE = 1
_INT_BYTES = 4
_LOW_HALF = 0xFFFFFFFF
_FAMILY = struct.Struct("=H")
_ADDRESS_BYTES = 28
_V4_AT, _V6_AT = 4, 8
"""Where the address itself is in a struct sockaddr."""
_MAPPED = bytes(10) + b"\xff\xff"
"""What an IPv4 address begins with where it is one of IPv6."""
_ANY_V4, _ANY_V6 = bytes(4), (bytes(16), _MAPPED + bytes(4))
_LOOPBACK_V6 = bytes(15) + b"\x01"
_STREAMS = (b"TCP", b"TCPv6", b"MPTCP", b"MPTCPv6")


def confine(door: socket.socket, host: str) -> None:
    """Keep the servers of this process on an address, if the system lets us.

    Args:
        door: To the warden.
        host: The address.
    """
    # Where it does not, the environment of a verdict tells, and the doctor says why.
    with contextlib.suppress(OSError):
        hand_over(install_bind_filter(), door, host)


def hand_over(descriptor: int, door: socket.socket, host: str) -> None:
    """Give a filter's descriptor to the warden, who is to keep servers on a host."""
    try:
        socket.send_fds(door, [host.encode()], [descriptor])
    finally:
        os.close(descriptor)


@dataclass(slots=True)
class _Ward:
    """Who has a filter.

    Attributes:
        host: Where it serves.
        v6_alone: Those of its sockets, as Linux calls them, that are for IPv6 alone.
    """

    host: str
    v6_alone: set[Path] = field(default_factory=set)


class Warden:
    """Filters of tasks, and where each task serves; a loop polls for it.

    Args:
        poll: Of the loop.
        arrivals: Where the filters of tasks come from.
    """

    def __init__(self, poll: select.poll, arrivals: socket.socket) -> None:
        self._poll = poll
        self._arrivals = arrivals
        self._wards: dict[int, _Ward] = {}
        poll.register(arrivals, select.POLLIN)

    @property
    def is_needed(self) -> bool:
        """Whether filters may come, or anybody has one."""
        return bool(self._wards) or self._arrivals.fileno() >= 0

    def serve(self, descriptor: int, event: int) -> None:
        """Take in what the loop has found: a filter, a bind, or that nobody is left."""
        if descriptor == self._arrivals.fileno():
            self._welcome()
        elif descriptor in self._wards:
            if event & select.POLLIN:
                _answer(descriptor, self._wards[descriptor])
            elif event & select.POLLHUP:
                # Nobody has the filter any more, also of what the task has left behind.
                self._poll.unregister(descriptor)
                del self._wards[descriptor]
                os.close(descriptor)

    def _welcome(self) -> None:
        host, descriptors, _, _ = socket.recv_fds(
            self._arrivals, _HOST_BYTES, 1, _CLOSE_ON_EXEC
        )
        for descriptor in descriptors:
            self._wards[descriptor] = _Ward(host.decode())
            self._poll.register(descriptor, select.POLLIN)
        if not host:
            self._poll.unregister(self._arrivals)
            self._arrivals.close()

    def close(self) -> None:
        """Close everything, as a fork of the loop's process does."""
        self._arrivals.close()
        while self._wards:
            descriptor, _ = self._wards.popitem()
            os.close(descriptor)


def watch_binds(arrivals: socket.socket) -> None:
    """Answer the binds of one process and of all that it starts, as long as any lives.

    Args:
        arrivals: Where its filter comes from, or its end.
    """
    poll = select.poll()
    warden = Warden(poll, arrivals)
    while warden.is_needed:
        for descriptor, event in poll.poll():
            warden.serve(descriptor, event)


def _answer(descriptor: int, ward: _Ward) -> None:
    """Let a call go on, at another address if it is a bind to every interface.

    What cannot be looked at goes on as it is. Linux lets ancestors see this much of a
    process also where they may not borrow its sockets, as in most containers.
    """
    notice = bytearray(_NOTICE.size)
    try:
        # It never waits: what poll has seen stays counted until it is received, even
        # if who called has been killed meanwhile, and then there is nothing to answer.
        fcntl.ioctl(descriptor, _RECEIVE, notice)
    except OSError:
        return
    number, thread, call, sock, second, third, fourth = _NOTICE.unpack(notice)
    place = f"/proc/{thread}/fd/{sock & _LOW_HALF}"
    with (
        # OverflowError of an address that no process has.
        contextlib.suppress(OSError, OverflowError),
        _open_memory(thread) as memory,
    ):
        # What has been opened is the caller's, whoever gets its number afterwards.
        fcntl.ioctl(descriptor, _IS_VALID, notice[:8])
        if call == find_calls().setsockopt:
            is_set = any(os.pread(memory, _INT_BYTES, fourth))
            change = ward.v6_alone.add if is_set else ward.v6_alone.discard
            change(Path(place).readlink())
        else:
            asked = os.pread(memory, min(third & _LOW_HALF, _ADDRESS_BYTES), second)
            if begin := _find_wildcard(asked):
                os.pwrite(memory, _choose_address(place, ward), second + begin)
    with contextlib.suppress(OSError):
        fcntl.ioctl(descriptor, _SEND, _ANSWER.pack(number, 0, 0, _CONTINUE))


@contextlib.contextmanager
def _open_memory(thread: int) -> Iterator[int]:
    descriptor = os.open(f"/proc/{thread}/mem", os.O_RDWR)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _find_wildcard(asked: bytes) -> int:
    """Where in a struct sockaddr all interfaces are asked for; 0 if they are not."""
    family = _FAMILY.unpack_from(asked)[0] if len(asked) > _V4_AT else None
    if family == socket.AF_INET and asked[_V4_AT:][:4] == _ANY_V4:
        return _V4_AT
    if family == socket.AF_INET6 and asked[_V6_AT:][:16] in _ANY_V6:
        return _V6_AT
    return 0


def _choose_address(place: str, ward: _Ward) -> bytes:
    """What a socket is bound to in the place of all interfaces; `b""` for those.

    Datagrams go where they went: nobody connects to who receives them.
    """
    protocol = os.getxattr(place, "system.sockprotoname").rstrip(b"\0")
    if protocol not in _STREAMS:
        return b""
    v4 = socket.inet_aton(ward.host)
    if not protocol.endswith(b"v6"):
        return v4
    # One for both families, as gRPC's are, is reached by way of IPv4. The others have
    # no address of the bench's, and stay on this machine.
    return _LOOPBACK_V6 if Path(place).readlink() in ward.v6_alone else _MAPPED + v4
