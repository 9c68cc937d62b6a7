"""A task as a process of its own: `python -m distbench.launch.spawned`.

Its arguments are the descriptors of its channel and of the door to its warden, and the
address that its servers are kept on (`""` lets them be).

It dies with the bench through EOF on its channel, for which Linux wakes it if it was
stopped. Linux could also kill it at its parent's death, but that signal spares what the
task started and, worse, comes as soon as the *thread* that started the task ends.
"""

from __future__ import annotations

import signal
import socket
import sys

from distbench.launch.bootstrap import run_task, wake_when_parent_dies
from distbench.launch.warden import confine

if __name__ == "__main__":
    wake_when_parent_dies()
    # Until the stack dump is registered, a request for one must not kill the task.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    # A bench in the background of a script may have been started with SIGINT ignored,
    # and others with signals blocked; the subject sees what it would see in a process
    # of its own, as a forked one does.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    channel_fd, door_fd, host = sys.argv[1:]
    with socket.socket(fileno=int(door_fd)) as door:
        if host:
            confine(door, host)
    run_task(int(channel_fd))
