"""A task as a process of its own: `python -m distbench.launch.spawned FD PARENT`."""

from __future__ import annotations

import signal
import sys

from distbench.launch.bootstrap import die_with_parent, run_task

if __name__ == "__main__":
    # Until the stack dump is registered, a request for one must not kill the task.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    channel_fd, parent = map(int, sys.argv[1:])
    if parent:
        die_with_parent(parent)
    run_task(channel_fd)
