"""What ends with a group of real, cheap processes: its tasks, and what they left."""

from __future__ import annotations

import gc
import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest
from launch_support import (
    FIRST,
    PRELOAD,
    TIMEOUT_S,
    Starter,
    check_no_leak,
    make_request,
)
from swept import swept
from waiting import comes_true, is_gone_soon

from distbench.cluster import ClusterSpec
from distbench.errors import ClusterError
from distbench.launch import group as group_module
from distbench.launch.failure import TaskFailedError
from distbench.launch.local import LocalEngine
from distbench.launch.rundir import RunDirectory
from distbench.launch.servers import get_fork_server
from distbench.launch.start import start_group


@pytest.mark.parametrize("how", ["fork", *swept("spawn")])
@pytest.mark.parametrize(
    "payload",
    [{}, {"environment": {}}, {"environment": {"TMPDIR": "/tmp"}}],
    ids=["as-it-is", "environment-cleared", "folder-of-the-users"],
)
def test_what_tasks_leave_in_their_temporary_folder_goes_with_the_run(
    start: Starter, how: str, payload: dict[str, Any], run_directory: RunDirectory
) -> None:
    left = start(start=how).call("make_file", payload, deadline=TIMEOUT_S)
    names = [Path(result["name"]) for result in left.values()]
    assert [name.exists() for name in names] == [True, True]
    run_directory.close()
    assert [name.exists() for name in names] == [False, False]


def test_no_process_is_left_after_close(start: Starter) -> None:
    group = start()
    pids = group.pids.values()
    group.close()
    group.close()
    assert group.closed
    assert not any(psutil.pid_exists(pid) for pid in pids)
    with pytest.raises(ClusterError, match=r"tasks of 'mwms:2' have been ended"):
        group.call("echo", {}, deadline=TIMEOUT_S)


@pytest.mark.parametrize("how", ["fork", *swept("spawn")])
def test_tasks_that_were_dismissed_end_while_another_group_works(
    start: Starter, how: str
) -> None:
    dismissed, other = start(start=how), start(start=how)
    pids = dismissed.pids.values()
    dismissed.dismiss()
    assert all(map(is_gone_soon, pids))
    assert len(other.call("echo", {}, deadline=TIMEOUT_S)) == 2
    dismissed.close()
    assert dismissed.closed


@pytest.mark.parametrize("how", ["fork", *swept("spawn")])
def test_what_a_task_started_ends_with_it(start: Starter, how: str) -> None:
    group = start("one", start=how)
    results = group.call("start_grandchild", {}, deadline=TIMEOUT_S)
    group.close()
    assert is_gone_soon(results[FIRST]["pid"])


@pytest.mark.parametrize("ending", ["close", "kill"])
@pytest.mark.parametrize("how", ["fork", *swept("spawn")])
def test_shared_memory_ends_with_the_task_that_made_it(
    start: Starter, how: str, ending: str
) -> None:
    group = start("one", start=how)
    name = group.call("share_memory", {}, deadline=TIMEOUT_S)[FIRST]["name"]
    segment = Path("/dev/shm", name)
    assert segment.exists()
    if ending == "kill":
        os.kill(group.pids[FIRST], signal.SIGKILL)
    group.close()
    assert comes_true(lambda: not segment.exists())


def test_a_daemon_ends_with_the_last_task_of_its_server(start: Starter) -> None:
    # Nobody else's task may live beside it: a server of its own.
    options = {"environment": {"LEAVES": "daemons"}}
    group, other = start("one", **options), start("one", **options)
    pid = group.call("leave_daemon", {}, deadline=TIMEOUT_S)[FIRST]["pid"]
    group.close()
    other.call("echo", {}, deadline=TIMEOUT_S)
    assert psutil.pid_exists(pid)
    other.close()
    assert is_gone_soon(pid)


def test_a_daemon_ends_with_the_server(start: Starter) -> None:
    group = start("one", environment={"LEAVES": "more daemons"})
    pid = group.call("leave_daemon", {}, deadline=TIMEOUT_S)[FIRST]["pid"]
    get_fork_server(PRELOAD, {"LEAVES": "more daemons"}).close()
    assert is_gone_soon(pid)


def test_a_forgotten_group_is_ended(run_directory: RunDirectory) -> None:
    request = make_request(ClusterSpec.parse("one"), run_directory)
    group = start_group(request, LocalEngine())
    pid = group.pids[FIRST]
    del group
    gc.collect()
    assert is_gone_soon(pid)


def test_a_task_that_ignores_sigterm_is_killed(
    start: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_module, "_TERMINATE_S", 0.05)
    monkeypatch.setattr(group_module, "_GIVE_UP_S", 0.0)
    group = start("one")
    group.call("echo", {}, deadline=TIMEOUT_S)
    with pytest.raises(TaskFailedError, match="deadline"):
        group.call("wait_stubbornly", {}, deadline=0.1)
    assert not psutil.pid_exists(group.pids[FIRST])


def test_ctrl_c_ends_the_group(start: Starter) -> None:
    group = start()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        group.call("wait", {}, deadline=TIMEOUT_S, on_progress=interrupt)
    assert group.closed
    assert not any(psutil.pid_exists(pid) for pid in group.pids.values())


def test_groups_leak_no_descriptors(start: Starter) -> None:
    check_no_leak(start, groups=5)
