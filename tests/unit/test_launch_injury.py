"""Tasks that are hurt on purpose: who is hit, when, and what the group makes of it."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from launch_support import TIMEOUT_S, Starter, is_gone_soon, open_starter

from distbench.cluster import Task
from distbench.errors import BadInputError
from distbench.launch.failure import TaskFailedError
from distbench.launch.group import Group
from distbench.launch.injury import Blow, Injurer, Injury
from distbench.launch.rundir import RunDirectory
from distbench.launch.start import Job

CHIEF = Task(role="chief", index=0)
WORKERS = (Task(role="worker", index=0), Task(role="worker", index=1))
SERVER = Task(role="ps", index=0)
TASKS = (CHIEF, *WORKERS, SERVER)
ON_FIRST, ON_SECOND = "in flight on worker-0", "in flight on worker-1"


@pytest.fixture
def start() -> Iterator[Starter]:
    with RunDirectory() as directory, open_starter(directory) as starter:
        yield starter


def test_a_task_is_hit_once_as_soon_as_the_step_is_reported() -> None:
    injury = Injury(number=signal.SIGKILL, step=3, task=SERVER)
    injurer = Injurer(injury, TASKS)
    assert injurer.follow(None, "build") is None
    assert injurer.follow(2, ON_FIRST) is None
    assert injurer.follow(4, ON_SECOND) == Blow(task=SERVER, number=signal.SIGKILL)
    assert injurer.follow(5, ON_FIRST) is None
    assert injurer.told == "ps-0 was sent SIGKILL with step 4"
    assert injurer.takes_death(SERVER)
    assert not injurer.takes_death(CHIEF)
    injurer.end()
    assert not injurer.takes_death(SERVER)


def test_the_worker_of_a_step_is_hit() -> None:
    injury = Injury(number=signal.SIGSTOP, step=5, runs=3, until_step=7)
    injurer = Injurer(injury, TASKS)
    assert injurer.follow(2, ON_FIRST) is None
    assert injurer.follow(3, ON_SECOND) is None
    assert injurer.follow(4, ON_FIRST) is None
    found = injurer.follow(5, ON_FIRST)
    assert found == Blow(task=WORKERS[1], number=signal.SIGSTOP)
    assert injurer.follow(6, ON_FIRST) is None
    found = injurer.follow(7, ON_FIRST)
    assert found == Blow(task=WORKERS[1], number=signal.SIGCONT)
    assert injurer.follow(8, ON_FIRST) is None
    assert not injurer.takes_death(WORKERS[1])


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"number": signal.SIGTERM, "task": SERVER}, "SIGKILL or SIGSTOP"),
        ({"number": signal.SIGKILL}, "must name a task"),
        ({"number": signal.SIGKILL, "task": SERVER, "runs": 1}, "must name a task"),
    ],
    ids=["signal", "nobody", "two"],
)
def test_an_injury_that_cannot_be_is_refused(fields: dict, match: str) -> None:
    with pytest.raises(BadInputError, match=match):
        Injury(step=1, **fields)


def test_a_task_of_another_cluster_is_refused() -> None:
    other = Task(role="ps", index=7)
    with pytest.raises(BadInputError, match="Expected one of chief-0"):
        Injurer(Injury(number=signal.SIGKILL, step=1, task=other), TASKS)


def _coordinate(group: Group, victim: Task, states: list[str]) -> None:
    payload = {
        "states": states,
        "phase": f"in flight on {victim}",
        "victim": str(victim),
        "pid": group.pids[victim],
    }
    group.call("coordinate", payload, tasks=[CHIEF], timeout_s=TIMEOUT_S)


def test_a_worker_that_is_killed_ends_nothing(start: Starter) -> None:
    group = start("ps:2+1", first=Job(name="bind", payload={"failures": 0}))
    group.injure(Injury(number=signal.SIGKILL, step=2, runs=1))
    _coordinate(group, WORKERS[1], ["", "", "gone", ""])
    assert group.injury == "worker-1 was sent SIGKILL with step 2"
    left = [task for task in TASKS if task != WORKERS[1]]
    assert set(group.call("echo", {}, tasks=left, timeout_s=TIMEOUT_S)) == set(left)


def test_a_worker_that_returns_has_run_its_first_job_and_works(start: Starter) -> None:
    group = start("ps:2+1", first=Job(name="bind", payload={"failures": 0}))
    before = group.pids[WORKERS[0]]
    group.injure(Injury(number=signal.SIGKILL, step=1, task=WORKERS[0], restarts=True))
    _coordinate(group, WORKERS[0], ["", "back"])
    assert group.injury.endswith("with step 1, it was started again")
    results = group.call("echo", {}, timeout_s=TIMEOUT_S)
    assert results[WORKERS[0]] == {"task": "worker-0"}
    after = group.pids[WORKERS[0]]
    assert after != before
    group.close()
    assert is_gone_soon(after)
    assert group.injury.count("again") == 1


def test_a_worker_that_is_stopped_goes_on(start: Starter) -> None:
    group = start("ps:2+1", first=Job(name="bind", payload={"failures": 0}))
    group.injure(Injury(number=signal.SIGSTOP, step=1, task=WORKERS[1], until_step=2))
    _coordinate(group, WORKERS[1], ["", "T", "S"])
    assert len(group.call("echo", {}, timeout_s=TIMEOUT_S)) == 4


def test_a_coordinator_that_is_killed_ends_the_job(start: Starter) -> None:
    group = start("ps:2+1", first=Job(name="bind", payload={"failures": 0}))
    pids = dict(group.pids)
    group.injure(Injury(number=signal.SIGKILL, step=1, task=CHIEF))
    with pytest.raises(TaskFailedError, match=r"chief-0.*SIGKILL.*step 1") as failed:
        _coordinate(group, CHIEF, ["", "gone"])
    assert failed.value.task == CHIEF
    assert all(is_gone_soon(pid) for pid in pids.values())


def test_the_death_of_another_task_is_not_taken_for_meant(start: Starter) -> None:
    group = start("ps:2+1", first=Job(name="bind", payload={"failures": 0}))
    group.injure(Injury(number=signal.SIGKILL, step=9, task=SERVER))
    payload = {task: {"do": "kill"} for task in WORKERS[:1]}
    with pytest.raises(TaskFailedError, match=r"worker-0.*SIGKILL"):
        group.call("mixed", payload, timeout_s=TIMEOUT_S)
