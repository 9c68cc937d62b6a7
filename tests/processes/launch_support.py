"""What the tests of the launcher share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import psutil

from distbench.cluster import ClusterSpec, Task
from distbench.launch.engine import Engine, Request
from distbench.launch.forkclient import ForkServer
from distbench.launch.group import Group
from distbench.launch.local import LocalEngine
from distbench.launch.rundir import RunDirectory
from distbench.launch.servers import get_fork_server
from distbench.launch.start import Job, start_group

FIRST, SECOND = Task(role="worker", index=0), Task(role="worker", index=1)

TIMEOUT_S = 20.0
"""Deadline of a job that is expected to end at once."""

PRELOAD = ("launch_entries",)
"""Imported before the tasks are forked, as the worker is: one import for all tasks."""

Starter = Callable[..., Group]


def make_request(spec: ClusterSpec, directory: RunDirectory, **options: Any) -> Request:
    """A group of `launch_entries`."""
    options = {"entry": "launch_entries:run", "preload": PRELOAD, **options}
    return Request(spec=spec, directory=directory, **options)


@contextmanager
def open_starter(directory: RunDirectory) -> Iterator[Starter]:
    """A function that starts groups of `launch_entries`, all closed at the end."""
    with ExitStack() as groups:

        def start(
            spec: str = "mwms:2",
            engine: Engine | None = None,
            first: Job | None = None,
            **options: Any,
        ) -> Group:
            request = make_request(ClusterSpec.parse(spec), directory, **options)
            group = start_group(request, engine or LocalEngine(), first)
            return groups.enter_context(group)

        yield start


def find_server() -> ForkServer:
    """The server that forks the tasks of a starter's groups."""
    return get_fork_server(PRELOAD, {})


def check_no_leak(start: Starter, *, groups: int) -> None:
    """Groups that come and go leave neither descriptors nor children behind."""
    start("mwms:1").close()
    before = psutil.Process().num_fds()
    for _ in range(groups):
        start("mwms:1").close()
    assert psutil.Process().num_fds() == before
    server = psutil.Process(find_server().pid)
    assert server.children() == []
    assert server.num_fds() < 10
