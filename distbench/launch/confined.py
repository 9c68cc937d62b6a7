"""`python -m distbench.launch.confined`: tries out whether servers can be kept at home.

Prints the address on which a server listens that asks for every interface, in a process
that is confined as tasks are, or why there is no such process.
"""

from __future__ import annotations

import os
import socket

from distbench.launch.bind_filter import (
    EVERYWHERE,
    install_bind_filter,
    measure_listening,
)
from distbench.launch.tf_config import LOOPBACK
from distbench.launch.warden import hand_over, watch_binds

_BLIND = "Linux does not let the bench look into its tasks"


def _become_server(door: socket.socket) -> None:
    lacks = _BLIND
    try:
        hand_over(install_bind_filter(), door, LOOPBACK)
    except OSError as error:
        lacks = str(error.strerror)
    found = measure_listening()
    print(lacks if found == EVERYWHERE else found, flush=True)


if __name__ == "__main__":
    arrivals, door = socket.socketpair()
    if os.fork() == 0:
        _become_server(door)
        os._exit(0)
    door.close()
    watch_binds(arrivals)
