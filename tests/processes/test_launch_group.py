"""What a group of real, cheap processes does when all goes well."""

from __future__ import annotations

import json
import os
from pathlib import Path

import psutil
import pytest
from launch_support import FIRST, PRELOAD, SECOND, TIMEOUT_S, Starter, find_server
from swept import swept

from distbench.cluster import Task
from distbench.errors import BadInputError
from distbench.launch.failure import TaskFailedError
from distbench.launch.rundir import RunDirectory
from distbench.launch.servers import get_fork_server
from distbench.launch.start import Job


@pytest.mark.parametrize("how", ["fork", *swept("spawn")])
def test_each_task_answers_with_its_own_result(start: Starter, how: str) -> None:
    group = start(start=how)
    results = group.call("echo", {"x": 1}, deadline=TIMEOUT_S)
    assert results == {
        FIRST: {"task": "worker-0", "x": 1},
        SECOND: {"task": "worker-1", "x": 1},
    }
    parents = {psutil.Process(pid).ppid() for pid in group.pids.values()}
    assert parents == {find_server().pid if how == "fork" else os.getpid()}


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


def test_a_single_process_gets_no_tf_config_of_the_user(
    start: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"worker": ["elsewhere:1"]}}')
    results = start("mirrored:2").call("describe", {}, deadline=TIMEOUT_S)
    assert "TF_CONFIG" not in results[FIRST]["environment"]
    assert results[FIRST]["addresses"] == {}


def test_a_fork_of_a_task_does_not_speak_for_it(start: Starter) -> None:
    group = start("one")
    answer = group.call("fork", {}, deadline=TIMEOUT_S)[FIRST]
    assert answer["child"] > 0
    for number in range(3):
        answer = group.call("echo", {"x": number}, deadline=TIMEOUT_S)[FIRST]
        assert answer["x"] == number


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
        start("mwms:1", first=job)
    assert failure.value.kind == "port"
