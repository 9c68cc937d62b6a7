"""What a group of real, cheap processes does when all goes well."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest
from launch_support import (
    FIRST,
    PRELOAD,
    SECOND,
    TIMEOUT_S,
    Starter,
    check_no_leak,
    comes_true,
    find_server,
    is_gone_soon,
)
from swept import swept

from distbench.cluster import ClusterSpec, Task
from distbench.errors import BadInputError, ClusterError
from distbench.launch import group as group_module
from distbench.launch.failure import TaskFailedError
from distbench.launch.rundir import RunDirectory
from distbench.launch.servers import get_fork_server
from distbench.launch.start import Job, start_group
from distbench.launch.surroundings import choose_start


@pytest.mark.parametrize("how", ["fork", *swept("spawn")])
def test_each_task_answers_with_its_own_result(start: Starter, how: str) -> None:
    group = start(start=how)
    results = group.call("echo", {"x": 1}, deadline=TIMEOUT_S)
    assert results == {
        FIRST: {"task": "worker-0", "x": 1},
        SECOND: {"task": "worker-1", "x": 1},
    }
    assert group.started_by == how


def test_some_tasks_work_while_others_only_serve(start: Starter) -> None:
    group = start("ps:2+1")
    chief = Task(role="chief", index=0)
    results = group.call("echo", {}, tasks=[chief], deadline=TIMEOUT_S)
    assert results == {chief: {"task": "chief-0"}}
    assert [str(task) for task in group.tasks] == [
        "chief-0",
        "worker-0",
        "worker-1",
        "ps-0",
    ]


def test_a_group_takes_one_job_after_another(start: Starter) -> None:
    group = start("one")
    for number in range(3):
        results = group.call("echo", {"x": number}, deadline=TIMEOUT_S)
        assert results[FIRST]["x"] == number


def test_progress_is_passed_on(start: Starter) -> None:
    seen: list[tuple[Task, int | None, str | None]] = []
    start("one").call(
        "report", {}, deadline=TIMEOUT_S, on_progress=lambda *event: seen.append(event)
    )
    assert seen == [(FIRST, 4, "loss"), (FIRST, 5, None)]


@pytest.mark.parametrize("how", ["fork", *swept("spawn")])
def test_a_task_sees_what_the_bench_sees(
    start: Starter,
    how: str,
    run_directory: RunDirectory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    get_fork_server(PRELOAD, {"GIVEN": "1"}).wait_ready()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path / "extra")
    monkeypatch.setenv("SET_AFTER_THE_SERVER_STARTED", "1")
    group = start(
        start=how,
        environment={"GIVEN": "1"},
    )
    results = group.call("describe", {}, deadline=TIMEOUT_S)
    for task, seen in results.items():
        environment = seen.pop("environment")
        assert environment["GIVEN"] == "1"
        assert environment["SET_AFTER_THE_SERVER_STARTED"] == "1"
        assert environment.get("PYTHONPATH") == os.environ.get("PYTHONPATH")
        assert json.loads(environment["TF_CONFIG"]) == {
            "cluster": seen["addresses"],
            "task": {"type": "worker", "index": task.index},
        }
        assert seen["sys_path"][0] == str(tmp_path / "extra")
        assert seen["cwd"] == str(tmp_path)
        assert seen["stdin"] == os.devnull
        assert seen["folder"] == str(run_directory.path)
        assert seen["spec"] == "mwms:2"
        assert (seen["blocked"], seen["interruptible"]) == ([], True)
        # Its own channel and nobody else's, or EOF would never come.
        assert seen["sockets"] == 1
        assert seen["pid"] == seen["session"] == seen["group"] == group.pids[task]
    assert len(set(results[FIRST]["addresses"]["worker"])) == 2


@pytest.mark.parametrize("how", ["fork", *swept("spawn")])
def test_what_tasks_leave_in_their_temporary_folder_goes_with_the_run(
    start: Starter, how: str, run_directory: RunDirectory
) -> None:
    left = start(start=how).call("make_file", {}, deadline=TIMEOUT_S)
    names = [Path(result["name"]) for result in left.values()]
    assert [name.exists() for name in names] == [True, True]
    run_directory.close()
    assert [name.exists() for name in names] == [False, False]


def test_a_single_process_gets_no_tf_config_of_the_user(
    start: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"worker": ["elsewhere:1"]}}')
    results = start("mirrored:2").call("describe", {}, deadline=TIMEOUT_S)
    assert "TF_CONFIG" not in results[FIRST]["environment"]
    assert results[FIRST]["addresses"] == {}


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


def test_a_fork_of_a_task_does_not_speak_for_it(start: Starter) -> None:
    group = start("one")
    answer = group.call("fork", {}, deadline=TIMEOUT_S)[FIRST]
    assert answer["child"] > 0
    for number in range(3):
        answer = group.call("echo", {"x": number}, deadline=TIMEOUT_S)[FIRST]
        assert answer["x"] == number


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
    group = start_group(
        ClusterSpec.parse("one"),
        run_directory=run_directory,
        entry="launch_entries:run",
    )
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


def test_tasks_are_spawned_where_a_fork_is_not_safe(start: Starter) -> None:
    said: list[str] = []
    group = start("one", check="launch_entries:refuse_fork", log=said.append)
    assert group.started_by == "spawn"
    assert "the test says no" in said[0]
    with pytest.raises(ClusterError, match=r"the test says no. Use start='spawn'"):
        start("one", check="launch_entries:refuse_fork", start="fork")


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


def test_a_spec_that_is_not_resolved_is_refused(start: Starter) -> None:
    with pytest.raises(BadInputError, match=r"'mwms:all' does not say how many"):
        start("mwms:all")


def test_a_lost_port_starts_the_cluster_anew(
    start: Starter, run_directory: RunDirectory
) -> None:
    said: list[str] = []
    job = Job(name="bind", payload={"failures": 1}, deadline=TIMEOUT_S)
    group = start("mwms:1", first=job, log=said.append)
    assert group.attempts == 2
    assert group.first == {FIRST: {}}
    # Another test may have killed the fork server, which is said first.
    assert "address already in use" in said[-1]
    tries = (run_directory.path / "worker-0.tries").read_text().splitlines()
    assert len(tries) == 2


def test_ports_that_are_always_lost_are_an_error(start: Starter) -> None:
    job = Job(name="bind", payload={"failures": 9}, deadline=TIMEOUT_S)
    with pytest.raises(TaskFailedError, match=r"PortLostError") as failure:
        start("mwms:1", first=job, attempts=2)
    assert failure.value.kind == "port"
