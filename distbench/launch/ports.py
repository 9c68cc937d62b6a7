"""Leases of TCP ports, so that suites that run at the same time never share one.

A port is chosen long before TensorFlow binds it. Until then a lock file holds it
against other benches of this user; the kernel releases the lock of a dead process.
"""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path
from types import TracebackType

import portpicker
from filelock import FileLock, Timeout

from distbench.errors import ClusterError

_ATTEMPTS_PER_PORT = 50


class PortLease:
    """Ports that no other bench takes until the lease is closed."""

    def __init__(self, locks: dict[int, FileLock]) -> None:
        self._locks = locks
        self.ports = tuple(locks)

    def close(self) -> None:
        """Give the ports back; a second call does nothing."""
        while self._locks:
            port, lock = self._locks.popitem()
            portpicker.return_port(port)
            # Removed while it is held: who waits for it finds that the file is gone
            # and takes another port.
            Path(lock.lock_file).unlink(missing_ok=True)
            lock.release()

    def __enter__(self) -> PortLease:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def lease_ports(count: int, *, folder: Path | None = None) -> PortLease:
    """Find free ports and hold them.

    Args:
        count: How many.
        folder: Where the lock files are; by default one folder per user.

    Raises:
        ClusterError: There are not so many free ports, or the folder is not writable.
    """
    folder = folder or Path(tempfile.gettempdir()) / f"distbench-ports-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise ClusterError(
            f"The folder of port locks '{folder}' cannot be made: {error}. "
            "Set TMPDIR to a folder that you can write to."
        ) from error
    locks: dict[int, FileLock] = {}
    lease = PortLease(locks)
    try:
        for _ in range(count * _ATTEMPTS_PER_PORT):
            if len(locks) == count:
                break
            _lease_one(folder, locks)
        else:
            if count:
                raise ClusterError(
                    f"There are not enough free ports on 127.0.0.1. Expected: {count}. "
                    f"Received: {len(locks)}. Close other servers or use fewer tasks."
                )
    except BaseException:
        lease.close()
        raise
    lease.ports = tuple(locks)
    return lease


def is_bindable(port: int) -> bool:
    """Whether a server can bind this port on the loopback interface now."""
    with socket.socket() as sock:
        # No SO_REUSEADDR or SO_REUSEPORT: they would let two servers share it.
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _lease_one(folder: Path, locks: dict[int, FileLock]) -> None:
    try:
        port: int = portpicker.pick_unused_port()
    except portpicker.NoFreePortFoundError:
        return
    # Not a singleton and not thread local: a lease may be closed by another thread.
    lock = FileLock(folder / f"{port}.lock", timeout=0, thread_local=False)
    try:
        lock.acquire()
    except Timeout:
        return
    except OSError as error:
        raise ClusterError(
            f"The port lock '{folder}/{port}.lock' cannot be taken: {error}. "
            "Set TMPDIR to a folder that you can write to."
        ) from error
    if port in locks or not is_bindable(port):
        lock.release()
        return
    locks[port] = lock
