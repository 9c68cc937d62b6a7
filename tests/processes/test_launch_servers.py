"""Who starts the tasks of a group: a fork server, or nobody where no fork is safe."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import Any

import psutil
import pytest
from launch_support import FIRST, PRELOAD, TIMEOUT_S, Starter, find_server
from waiting import is_gone_soon

from distbench.errors import BadInputError, ClusterError
from distbench.launch.failure import TaskFailedError
from distbench.launch.servers import get_fork_server
from distbench.launch.surroundings import choose_start


def test_a_fork_server_is_shared_and_has_one_thread(start: Starter) -> None:
    first, second = start("one"), start("one")
    parents = {psutil.Process(group.pids[FIRST]).ppid() for group in (first, second)}
    server = find_server()
    assert parents == {server.pid}
    assert psutil.Process(server.pid).num_threads() == 1
    assert os.getsid(server.pid) == server.pid


def test_an_environment_of_the_imports_has_its_own_server(start: Starter) -> None:
    groups = start("one"), start("one", environment={"IMPORTS_SEE": "this"})
    parents = {psutil.Process(group.pids[FIRST]).ppid() for group in groups}
    assert len(parents) == 2


def test_a_dead_fork_server_is_replaced(start: Starter) -> None:
    start("one").close()
    old = find_server().pid
    os.kill(old, signal.SIGKILL)
    said: list[str] = []
    group = start("one", log=said.append)
    assert group.call("echo", {}, deadline=TIMEOUT_S)
    assert find_server().pid != old
    assert said == ["The fork server had died or was stopped; another one is started."]


def test_a_server_that_dies_while_it_imports_is_replaced(start: Starter) -> None:
    environment = {"KILLED": "early"}
    os.kill(get_fork_server(PRELOAD, environment).pid, signal.SIGKILL)
    said: list[str] = []
    group = start("one", environment=environment, log=said.append)
    assert group.call("echo", {}, deadline=TIMEOUT_S)
    assert said == ["The fork server had died or was stopped; another one is started."]


def test_a_fork_server_takes_its_tasks_with_it(start: Starter) -> None:
    group = start()
    server = find_server().pid

    def kill_server(*_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(server, signal.SIGTERM)

    words = r"by SIGKILL \(its fork server died: it was killed by SIGTERM\)"
    with pytest.raises(TaskFailedError, match=words) as failure:
        group.call("wait", {}, deadline=TIMEOUT_S, on_progress=kill_server)
    assert failure.value.signal == signal.SIGKILL
    assert "memory" not in str(failure.value)
    assert all(is_gone_soon(pid) for pid in group.pids.values())


def test_a_fork_server_that_is_stopped_amid_a_job_is_named_soon(
    start: Starter,
) -> None:
    group = start()
    server = find_server().pid

    def stop_server(*_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(server, signal.SIGSTOP)

    begin_s = time.monotonic()
    words = r"\(its fork server was stopped by a signal.* Look who stops processes here"
    with pytest.raises(TaskFailedError, match=words):
        group.call("wait", {}, deadline=60.0, on_progress=stop_server)
    assert time.monotonic() - begin_s < 20
    assert all(is_gone_soon(pid) for pid in [server, *group.pids.values()])
    assert start("one").call("echo", {}, deadline=TIMEOUT_S)


def test_an_import_that_fails_is_named(start: Starter) -> None:
    with pytest.raises(ClusterError, match=r"could not import no_such_module") as error:
        start("one", preload=("no_such_module",))
    assert "ModuleNotFoundError" in error.value.detail


@pytest.mark.parametrize(
    ("wanted", "platform", "expected"),
    [
        pytest.param(None, "linux", "fork", id="linux"),
        pytest.param("spawn", "linux", "spawn", id="linux-on-request"),
        pytest.param(None, "darwin", "spawn", id="macos"),
    ],
)
def test_the_start_follows_the_system(
    wanted: Any, platform: str, expected: str
) -> None:
    assert choose_start(wanted, platform) == expected


@pytest.mark.parametrize(
    ("wanted", "platform", "message"),
    [
        pytest.param(None, "win32", "Use WSL or a container", id="windows"),
        pytest.param("fork", "darwin", "not possible on macOS", id="macos-fork"),
    ],
)
def test_a_start_that_is_not_possible_is_refused(
    wanted: Any, platform: str, message: str
) -> None:
    with pytest.raises(BadInputError, match=message):
        choose_start(wanted, platform)
