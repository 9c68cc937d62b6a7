"""A process joins a cluster when those that it calls at once are there."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

from tensorflow.core.protobuf.tensorflow_server_pb2 import ServerDef
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import context

_POLL_S = 0.002
_GIVE_UP_S = 10.0
"""Then TensorFlow waits by itself: whoever is missing has its own deadline."""


def wait_before_joining() -> None:
    """Have TensorFlow join a cluster no sooner than those listen whom it calls first.

    Where a connection is refused, gRPC tries again after a second, which is longer than
    a small cluster takes from its start to its end. Workers of collectives call their
    leader, and a chief of parameter servers calls everybody.
    """
    _wait_before("TFE_EnableCollectiveOps", 1, _list_leader)
    _wait_before("TFE_ContextSetServerDef", 2, _list_peers)
    _wait_before("TFE_ContextSetServerDefWithTimeoutAndRetries", 2, _list_peers)


def join_no_more() -> None:
    """Have TensorFlow join the cluster that this process has joined no second time.

    A strategy that is made joins anew, by which the leader of the collectives forgets
    who of its peers has called already: those then wait for each other without end.
    """
    join = pywrap_tfe.TFE_EnableCollectiveOps
    joined = context.context()._collective_ops_server_def

    def join_another(handle: Any, definition: bytes) -> Any:
        if _name_place(ServerDef.FromString(definition)) == _name_place(joined):
            return None
        return join(handle, definition)

    pywrap_tfe.TFE_EnableCollectiveOps = join_another


def _name_place(server: ServerDef) -> tuple[object, ...]:
    return (*_list_tasks(server), server.job_name, server.task_index)


def wait_until_listening(addresses: Iterator[str], timeout_s: float) -> bool:
    """Wait until somebody listens at every address; says whether that is so.

    Args:
        addresses: `host:port` each.
        timeout_s: For all of them together.
    """
    deadline = time.monotonic() + timeout_s
    for address in addresses:
        host, _, port = address.rpartition(":")
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            try:
                socket.create_connection((host.strip("[]"), int(port)), left).close()
                break
            except OSError:
                time.sleep(_POLL_S)
    return True


def _wait_before(
    name: str, place: int, list_addresses: Callable[[ServerDef], Iterator[str]]
) -> None:
    """Put a wait before one of TensorFlow's functions.

    Args:
        name: Its name.
        place: Which of its arguments is the serialized definition of the cluster.
        list_addresses: For whom to wait.
    """
    join = getattr(pywrap_tfe, name)

    def wait_and_join(*args: Any) -> Any:
        cluster = ServerDef.FromString(args[place])
        wait_until_listening(list_addresses(cluster), _GIVE_UP_S)
        return join(*args)

    setattr(pywrap_tfe, name, wait_and_join)


def _list_leader(server: ServerDef) -> Iterator[str]:
    """Where the leader of the collectives listens, unless it is this process."""
    leader = server.default_session_config.experimental.collective_group_leader
    for task, address in _list_tasks(server):
        if leader == f"/job:{task[0]}/replica:0/task:{task[1]}":
            yield address


def _list_peers(server: ServerDef) -> Iterator[str]:
    """Where the others listen."""
    for _, address in _list_tasks(server):
        yield address


def _list_tasks(server: ServerDef) -> Iterator[tuple[tuple[str, int], str]]:
    me = (server.job_name, server.task_index)
    for job in server.cluster.job:
        for index, address in sorted(job.tasks.items()):
            if (job.name, index) != me:
                yield (job.name, index), address
