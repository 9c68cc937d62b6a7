"""Leases of TCP ports, so that suites that run at the same time never share one.

A port is chosen long before TensorFlow binds it. Until then a UDP socket on the same
number holds it against other benches: TCP does not mind, one process alone can have it,
whoever its user is, and the kernel takes it back from a dead one.
"""

from __future__ import annotations

import socket

import portpicker

from distbench.errors import ClusterError
from distbench.launch.closing import Closing
from distbench.launch.tf_config import LOOPBACK

_ATTEMPTS_PER_PORT = 50


class PortLease(Closing):
    """Ports that no other bench takes until the lease is closed."""

    def __init__(self, locks: dict[int, socket.socket]) -> None:
        self._locks = locks
        self.ports = tuple(locks)

    def close(self) -> None:
        """Give the ports back; a second call does nothing."""
        while self._locks:
            port, lock = self._locks.popitem()
            portpicker.return_port(port)
            lock.close()


def lease_ports(count: int) -> PortLease:
    """Find free ports and hold them.

    Args:
        count: How many.

    Raises:
        ClusterError: There are not so many free ports, or no way to them.
    """
    if count:
        _check_loopback()
    locks: dict[int, socket.socket] = {}
    try:
        for _ in range(count * _ATTEMPTS_PER_PORT):
            if len(locks) == count:
                break
            _lease_one(locks)
        else:
            if count:
                raise ClusterError(
                    f"There are not enough free ports on {LOOPBACK}. Expected: "
                    f"{count}. Received: {len(locks)}. Close other servers or use "
                    "fewer tasks."
                )
    except BaseException:
        PortLease(locks).close()
        raise
    return PortLease(locks)


def is_bindable(port: int) -> bool:
    """Whether a server can bind this port on the loopback interface now."""
    lock = _bind(port, socket.SOCK_STREAM)
    if lock is None:
        return False
    lock.close()
    return True


def _check_loopback() -> None:
    """Fail at once where servers could bind, and nobody would ever reach them."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect((LOOPBACK, 1))  # looks for the way, and sends nothing
        except OSError as error:
            raise ClusterError(
                f"There is no way to {LOOPBACK}: {error}. Tasks of this machine talk "
                "over its loopback interface: bring it up ('ip link set lo up')."
            ) from error


def _lease_one(locks: dict[int, socket.socket]) -> None:
    try:
        port: int = portpicker.pick_unused_port()
    except portpicker.NoFreePortFoundError:
        return
    lock = _bind(port, socket.SOCK_DGRAM)
    if lock is None:
        return
    if is_bindable(port):
        locks[port] = lock
    else:
        lock.close()


def _bind(port: int, kind: socket.SocketKind) -> socket.socket | None:
    """A socket on a loopback port, None where somebody has it."""
    # No SO_REUSEADDR or SO_REUSEPORT: they would let two have it.
    sock = socket.socket(socket.AF_INET, kind)
    try:
        sock.bind((LOOPBACK, port))
    except OSError:
        sock.close()
        return None
    return sock
