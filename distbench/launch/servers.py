"""The fork servers of this process: shared, and started again when dead.

There is one server per environment that modules are imported under, since what an
import reads (`TF_USE_LEGACY_KERAS`) cannot be changed after it. A server lives as
long as the bench.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from distbench.launch.forkclient import ForkServer
from distbench.locks import Locks

_Key = tuple[tuple[str, ...], frozenset[tuple[str, str]]]

_SERVERS: dict[_Key, ForkServer] = {}
_LOCKS = Locks()


def get_fork_server(
    preload: tuple[str, ...], environment: Mapping[str, str]
) -> ForkServer:
    """The living server for these imports under this environment.

    Args:
        preload: Modules to import before the first fork.
        environment: What the imports have to see, beyond the bench's own environment
            at the time when the server starts.
    """
    key = (preload, frozenset(environment.items()))
    with _LOCKS.of("servers"):
        server = _SERVERS.get(key)
        if server is None or server.dead:
            server = _SERVERS[key] = ForkServer(preload, environment)
        return server


def close_fork_servers() -> None:
    """End the servers of this process, also those that still import.

    A fork of the bench leaves the bench's servers alone, and starts others.
    """
    for server in tuple(_SERVERS.values()):
        server.close()
    _SERVERS.clear()


os.register_at_fork(after_in_child=close_fork_servers)
