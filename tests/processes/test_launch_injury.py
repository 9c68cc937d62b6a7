"""Tasks that are hurt on purpose: who is hit, when, and what the group makes of it."""

from __future__ import annotations

import signal

import pytest
from launch_support import TIMEOUT_S, Starter
from waiting import is_gone_soon

from distbench.cluster import Task
from distbench.errors import BadInputError
from distbench.launch.failure import TaskFailedError
from distbench.launch.group import Group
from distbench.launch.injury import Blow, Injurer, Injury
from distbench.launch.start import Job

CHIEF = Task(role="chief", index=0)
WORKERS = (Task(role="worker", index=0), Task(role="worker", index=1))
SERVER = Task(role="ps", index=0)
TASKS = (CHIEF, *WORKERS, SERVER)
ON_FIRST, ON_SECOND = "in flight on worker-0", "in flight on worker-1"


KILLED = Blow(task=SERVER, number=signal.SIGKILL)


def make_injurer(*injuries: Injury) -> Injurer:
    return Injurer(injuries, TASKS, lambda: 0.0)


def test_a_task_is_hit_once_as_soon_as_the_step_is_reported() -> None:
    injurer = make_injurer(Injury(number=signal.SIGKILL, step=3, task=SERVER))
    assert injurer.follow(CHIEF, None, "build") == []
    assert injurer.follow(CHIEF, 2, ON_FIRST) == []
    assert injurer.follow(CHIEF, 4, ON_SECOND) == [KILLED]
    assert injurer.follow(CHIEF, 5, ON_FIRST) == []
    assert injurer.told == "ps-0 was sent SIGKILL with step 4"
    assert injurer.takes_death(SERVER)
    assert not injurer.takes_death(CHIEF)
    injurer.end()
    assert not injurer.takes_death(SERVER)


def test_the_worker_of_a_step_is_hit() -> None:
    injury = Injury(number=signal.SIGSTOP, step=5, runs=3, until_step=7)
    injurer = make_injurer(injury)
    assert injurer.follow(CHIEF, 2, ON_FIRST) == []
    assert injurer.follow(CHIEF, 3, ON_SECOND) == []
    assert injurer.follow(CHIEF, 4, ON_FIRST) == []
    found = injurer.follow(CHIEF, 5, ON_FIRST)
    assert found == [Blow(task=WORKERS[1], number=signal.SIGSTOP)]
    assert injurer.follow(CHIEF, 6, ON_FIRST) == []
    found = injurer.follow(CHIEF, 7, ON_FIRST)
    assert found == [Blow(task=WORKERS[1], number=signal.SIGCONT)]
    assert injurer.follow(CHIEF, 8, ON_FIRST) == []
    assert not injurer.takes_death(WORKERS[1])


def test_a_task_that_reports_steps_is_hit_at_its_own() -> None:
    injury = Injury(number=signal.SIGKILL, step=1, task=WORKERS[1], name="kill it")
    injurer = make_injurer(injury)
    assert injurer.follow(WORKERS[0], 1, "bounded") == []
    assert injurer.name_cause(WORKERS[1], signal.SIGKILL) == ""
    found = injurer.follow(WORKERS[1], 1, "bounded")
    assert found == [Blow(task=WORKERS[1], number=signal.SIGKILL)]
    assert injurer.name_cause(WORKERS[1], signal.SIGKILL) == "kill it"
    assert injurer.name_cause(WORKERS[0], signal.SIGKILL) == ""
    # It was quicker, and ended by itself.
    assert injurer.name_cause(WORKERS[1]) == ""


def test_a_task_is_told_to_stand_still_until_it_goes_on() -> None:
    injury = Injury(
        number=signal.SIGSTOP, step=1, task=WORKERS[0], until_step=2, name="stop it"
    )
    injurer = make_injurer(injury)
    injurer.follow(CHIEF, 1, ON_FIRST)
    assert injurer.name_cause(WORKERS[0]) == "stop it"
    injurer.follow(CHIEF, 2, ON_FIRST)
    assert injurer.name_cause(WORKERS[0]) == ""


def test_a_task_that_was_started_again_dies_of_something_else() -> None:
    injurer = make_injurer(
        Injury(number=signal.SIGKILL, step=1, task=WORKERS[0], restarts=True),
        Injury(number=signal.SIGKILL, step=3, task=WORKERS[0], name="the second"),
    )
    injurer.follow(CHIEF, 1, ON_FIRST)
    assert injurer.takes_death(WORKERS[0])
    assert injurer.restarts(WORKERS[0])
    assert not injurer.takes_death(WORKERS[0])
    assert not injurer.restarts(WORKERS[0])
    assert injurer.name_cause(WORKERS[0], signal.SIGKILL) == ""
    injurer.follow(CHIEF, 3, ON_FIRST)
    assert injurer.takes_death(WORKERS[0])
    assert injurer.name_cause(WORKERS[0], signal.SIGKILL) == "the second"


def test_a_delay_ends_by_the_clock_and_comes_again_with_its_step() -> None:
    now = [0.0]
    injury = Injury(number=signal.SIGSTOP, step=1, task=WORKERS[0], for_s=2.0)
    injurer = Injurer([injury], TASKS, lambda: now[0])
    for begin in (0.0, 10.0):
        now[0] = begin
        assert injurer.list_due() == []
        found = injurer.follow(WORKERS[0], 1, "exact")
        assert found == [Blow(task=WORKERS[0], number=signal.SIGSTOP)]
        assert injurer.holds(WORKERS[0])
        assert injurer.next_s == begin + 2
        now[0] = begin + 2
        assert injurer.list_due() == [Blow(task=WORKERS[0], number=signal.SIGCONT)]
        assert not injurer.holds(WORKERS[0])
        assert injurer.follow(WORKERS[0], 2, "exact") == []
    assert injurer.told == (
        "worker-0 was sent SIGSTOP with step 1 and went on after 2 s"
    )


@pytest.mark.parametrize(
    ("fields", "taken"),
    [
        ({"number": signal.SIGKILL, "goes_on": True}, True),
        ({"number": signal.SIGSTOP, "goes_on": True}, True),
        ({"number": signal.SIGKILL}, False),
        ({"number": signal.SIGKILL, "goes_on": True, "restarts": True}, False),
        ({"number": signal.SIGSTOP, "goes_on": True, "for_s": 1e9}, False),
    ],
    ids=["killed", "stopped", "waited-for", "comes-back", "late"],
)
def test_the_others_go_on_without_who_will_not_come_back(
    fields: dict, taken: bool
) -> None:
    injurer = make_injurer(Injury(step=1, task=WORKERS[0], name="it", **fields))
    assert injurer.pending == ("it",)
    assert not injurer.has_taken(WORKERS[0])
    injurer.follow(WORKERS[0], 1, "call")
    assert injurer.pending == ()
    assert injurer.has_taken(WORKERS[0]) is taken
    assert not injurer.has_taken(WORKERS[1])


def test_two_injuries_are_followed_side_by_side() -> None:
    injurer = make_injurer(
        Injury(number=signal.SIGKILL, step=2, task=SERVER),
        Injury(number=signal.SIGSTOP, step=2, task=WORKERS[0]),
    )
    blows = injurer.follow(CHIEF, 2, ON_FIRST)
    assert blows == [KILLED, Blow(task=WORKERS[0], number=signal.SIGSTOP)]
    # Nobody said that it goes on.
    assert not injurer.holds(WORKERS[0])


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
        make_injurer(Injury(number=signal.SIGKILL, step=1, task=other))


def _coordinate(group: Group, victim: Task, states: list[str]) -> None:
    payload = {
        "states": states,
        "phase": f"in flight on {victim}",
        "victim": str(victim),
        "pid": group.pids[victim],
    }
    group.call("coordinate", payload, tasks=[CHIEF], deadline=TIMEOUT_S)


def test_a_worker_that_is_killed_ends_nothing(start: Starter) -> None:
    group = start("ps:2+1", first=Job(name="bind", payload={"failures": 0}))
    group.injure(Injury(number=signal.SIGKILL, step=2, runs=1))
    _coordinate(group, WORKERS[1], ["", "", "gone", ""])
    assert group.injury == "worker-1 was sent SIGKILL with step 2"
    left = [task for task in TASKS if task != WORKERS[1]]
    assert set(group.call("echo", {}, tasks=left, deadline=TIMEOUT_S)) == set(left)


def test_a_worker_that_returns_has_run_its_first_job_and_works(start: Starter) -> None:
    group = start("ps:2+1", first=Job(name="bind", payload={"failures": 0}))
    before = group.pids[WORKERS[0]]
    group.injure(Injury(number=signal.SIGKILL, step=1, task=WORKERS[0], restarts=True))
    _coordinate(group, WORKERS[0], ["", "back"])
    assert group.injury.endswith("with step 1, it was started again")
    results = group.call("echo", {}, deadline=TIMEOUT_S)
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
    assert len(group.call("echo", {}, deadline=TIMEOUT_S)) == 4


def test_who_waits_with_its_progress_is_hit_before_it_goes_on(start: Starter) -> None:
    group = start("mwms:2")
    task = WORKERS[1]
    group.injure(
        Injury(number=signal.SIGKILL, step=1, task=task, name="fault kill:worker:1@1")
    )
    words = r"worker-1.*SIGKILL.*step 1.*: the injected fault kill:worker:1@1\."
    with pytest.raises(TaskFailedError, match=words) as failed:
        group.call("take_steps", {"waits": [1]}, deadline=TIMEOUT_S)
    assert (failed.value.task, failed.value.kind) == (task, "injected")


def test_a_task_that_is_delayed_ends_nothing(start: Starter) -> None:
    group = start("mwms:2")
    injury = Injury(number=signal.SIGSTOP, step=1, task=WORKERS[1], for_s=0.1)
    group.injure(injury)
    group.call("take_steps", {"waits": [1]}, deadline=TIMEOUT_S)
    assert (
        group.injury == "worker-1 was sent SIGSTOP with step 1 and went on after 0.1 s"
    )


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
    with pytest.raises(TaskFailedError, match=r"worker-0.*SIGKILL"):
        group.call("kill", {}, tasks=WORKERS[:1], deadline=TIMEOUT_S)
