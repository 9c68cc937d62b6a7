"""Who is blamed when a task fails, and what is told of it."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from launch_support import FIRST, SECOND, TIMEOUT_S, Starter, open_starter
from swept import swept

from distbench.cluster import Task
from distbench.launch import blame
from distbench.launch.blame import Member
from distbench.launch.channel import BenchChannel
from distbench.launch.failure import TaskFailedError, read_tail, trim_stacks
from distbench.launch.group import Group
from distbench.launch.process import ExitStatus, TaskProcess
from distbench.launch.rundir import RunDirectory

Maker = Callable[..., Group]


@pytest.fixture
def start() -> Iterator[Starter]:
    with RunDirectory() as directory, open_starter(directory) as starter:
        yield starter


def catch_failure(
    group: Group, job: str, payload: Any = None, **options: Any
) -> TaskFailedError:
    options = {"timeout_s": TIMEOUT_S, **options}
    with pytest.raises(TaskFailedError, match=job) as caught:
        group.call(job, payload or {}, **options)
    assert group.closed
    assert not any(psutil.pid_exists(pid) for pid in group.pids.values())
    return caught.value


def test_an_exception_is_told_with_rank_place_and_traceback(start: Starter) -> None:
    failure = catch_failure(start("one"), "fail")
    assert str(failure) == (
        "Task worker-0 of 'one' raised ValueError in job 'fail', last at step 2, "
        "phase slot: a bad subject"
    )
    assert (failure.task, failure.kind, failure.replica) == (FIRST, "subject", 7)
    assert (failure.step, failure.phase) == (2, "slot")
    assert (failure.exception, failure.message) == ("ValueError", "a bad subject")
    assert failure.traceback.rstrip().endswith("ValueError: a bad subject")
    assert failure.log_tails == {FIRST: "about to fail"}
    assert "about to fail" in failure.detail
    assert failure.traceback.rstrip() in failure.detail


@pytest.mark.parametrize("how", ["fork", *swept("spawn")])
def test_one_failure_ends_the_call_though_others_wait(start: Starter, how: str) -> None:
    group = start("mwms:3", start=how)
    group.call("echo", {}, timeout_s=TIMEOUT_S)
    payload = {task: {"do": "wait"} for task in group.tasks}
    payload[SECOND] = {"do": "fail"}
    failure = catch_failure(group, "mixed", payload)
    assert (failure.task, failure.waiting) == (SECOND, group.tasks)
    assert sorted(map(str, failure.stacks)) == ["worker-0", "worker-2"]
    assert "launch_entries.py" in failure.stacks[FIRST]
    assert " in wait" in failure.stacks[FIRST]
    assert "launch/bootstrap.py" not in failure.stacks[FIRST]


def test_an_exit_is_told_with_its_code_and_the_end_of_the_log(start: Starter) -> None:
    failure = catch_failure(start("one"), "exit")
    assert (failure.kind, failure.exit_code, failure.signal) == ("died", 3, None)
    assert "worker-0 of 'one' ended with exit code 3 in job 'exit'" in str(failure)
    lines = failure.log_tails[FIRST].splitlines()
    assert lines == [f"line {number}" for number in range(60, 100)]


@pytest.mark.parametrize("how", ["fork", *swept("spawn")])
def test_a_kill_is_told_with_its_signal(start: Starter, how: str) -> None:
    failure = catch_failure(start("one", start=how), "kill")
    assert (failure.kind, failure.exit_code, failure.signal) == ("died", None, 9)
    assert "was killed by SIGKILL" in str(failure)


def test_a_system_exit_is_an_exception(start: Starter) -> None:
    failure = catch_failure(start("one"), "leave")
    assert (failure.exception, failure.message) == ("SystemExit", "leaving")


def test_a_death_is_blamed_and_not_those_who_complain_of_it(start: Starter) -> None:
    payload = {FIRST: {"do": "fail"}, SECOND: {"do": "kill"}}
    group = start()
    group.call("echo", {}, timeout_s=TIMEOUT_S)
    failure = catch_failure(group, "mixed", payload)
    assert (failure.task, failure.signal) == (SECOND, signal.SIGKILL)


def test_a_serving_task_that_dies_fails_the_call_of_others(start: Starter) -> None:
    group = start("ps:1+1")
    server = Task(role="ps", index=0)

    def kill_server(*_: object) -> None:
        os.kill(group.pids[server], signal.SIGKILL)

    tasks = [Task(role="chief", index=0)]
    failure = catch_failure(group, "wait", tasks=tasks, on_progress=kill_server)
    assert failure.task == server


def test_a_task_that_has_answered_must_stay_alive(start: Starter) -> None:
    group = start()

    def kill_first(*_: object) -> None:
        os.kill(group.pids[FIRST], signal.SIGKILL)

    payload = {FIRST: {"do": "echo"}, SECOND: {"do": "wait"}}
    failure = catch_failure(group, "mixed", payload, on_progress=kill_first)
    assert failure.task == FIRST


def test_a_death_between_calls_is_found_by_the_next(start: Starter) -> None:
    group = start("one")
    os.kill(group.pids[FIRST], signal.SIGKILL)
    assert catch_failure(group, "echo").signal == signal.SIGKILL


@pytest.mark.parametrize("job", ["wait", "stop"])
def test_a_deadline_shows_where_each_task_is(start: Starter, job: str) -> None:
    payload = {FIRST: {"do": "echo"}, SECOND: {"do": job}}
    group = start()
    group.call("echo", {}, timeout_s=TIMEOUT_S)
    failure = catch_failure(group, "mixed", payload, timeout_s=0.25)
    assert (failure.kind, failure.task, failure.waiting) == (
        "timeout",
        SECOND,
        (SECOND,),
    )
    assert " in serve" in failure.stacks[FIRST]
    assert f" in {job}" in failure.stacks[SECOND]
    if job == "wait":
        assert "passed its deadline of 0.25 s" in str(failure)
        assert "worker-1 (step 1, phase loss)" in str(failure)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("launch_entries:raise_at_once", "RuntimeError .* no worker today"),
        ("launch_entries:missing", "AttributeError .* has no attribute 'missing'"),
        ("no_such_module:run", "ModuleNotFoundError .* 'no_such_module'"),
    ],
    ids=["raises", "no-function", "no-module"],
)
def test_an_entry_that_does_not_run_is_the_benchs_fault(
    start: Starter, entry: str, message: str
) -> None:
    group = start("one", entry=entry)
    with pytest.raises(TaskFailedError, match=message.replace(" .* ", ".*")) as caught:
        group.call("echo", {}, timeout_s=TIMEOUT_S)
    assert caught.value.kind == "bench"


def test_an_entry_that_returns_is_a_death(start: Starter) -> None:
    failure = catch_failure(start("one", entry="launch_entries:end_at_once"), "echo")
    assert failure.exit_code == 0
    assert failure.log_tails == {FIRST: "the entry returns"}


def test_an_unknown_job_is_answered_with_the_known_ones(start: Starter) -> None:
    failure = catch_failure(start("one"), "no_such_job")
    assert "no job 'no_such_job'. Expected one of ['bind', 'describe'" in str(failure)


def test_a_result_that_is_no_json_is_an_exception(start: Starter) -> None:
    failure = catch_failure(start("one"), "return_no_json")
    assert failure.exception == "TypeError"


class ScriptedProcess(TaskProcess):
    """Ends when the script says so; its channel's other end is the script's."""

    pid = -1

    def __init__(self, *history: ExitStatus | None) -> None:
        self.history = list(history)
        self.signals: list[signal.Signals] = []
        self.ours, self.theirs = socket.socketpair()

    def poll(self) -> ExitStatus | None:
        now = self.history.pop(0) if len(self.history) > 1 else self.history[0]
        if self.history[0] is not None:
            self.theirs.close()  # EOF tells the loop to look again
        return now

    def send_signal(self, number: signal.Signals) -> None:
        self.signals.append(number)

    def signal_group(self, number: signal.Signals) -> None:
        if self.poll() is None:
            self.signals.append(number)
            self.history = [ExitStatus(signal=number)]
            self.theirs.close()

    def end_when_asked(self) -> None:
        self.asked = json.loads(self.theirs.recv(1000))
        self.history = [ExitStatus(code=0)]
        self.theirs.close()

    def say(self, **message: Any) -> None:
        self.theirs.sendall(json.dumps(message).encode() + b"\n")


@pytest.fixture
def make_scripted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Maker]:
    monkeypatch.setattr(blame, "_STACKS_S", 0.0)
    processes: list[ScriptedProcess] = []

    def make(*scripted: ScriptedProcess, **options: Any) -> Group:
        processes.extend(scripted)
        members = [
            Member(
                task=Task(role="worker", index=index),
                channel=BenchChannel(process.ours),
                process=process,
                log=tmp_path / "log",
                stacks=tmp_path / "stacks",
            )
            for index, process in enumerate(scripted)
        ]
        return Group("scripted", members, **options)

    yield make
    for process in processes:
        process.theirs.close()


_COMPLAINT = {
    "event": "failed",
    "exception": "UnavailableError",
    "message": "peer lost",
    "traceback": "",
    "kind": "bench",
}


def test_a_death_that_comes_in_after_the_complaint_is_the_cause(
    make_scripted: Maker,
) -> None:
    complains = ScriptedProcess(None)
    dies = ScriptedProcess(None, ExitStatus(signal=signal.SIGSEGV))
    complains.say(**_COMPLAINT)
    group = make_scripted(complains, dies)
    with pytest.raises(TaskFailedError, match=r"worker-1 .* killed by SIGSEGV"):
        group.call("train", {}, timeout_s=TIMEOUT_S)


def test_the_first_of_several_exceptions_is_the_cause(
    make_scripted: Maker,
) -> None:
    first, second = ScriptedProcess(None), ScriptedProcess(None)
    second.say(**_COMPLAINT)
    group = make_scripted(first, second)
    with pytest.raises(TaskFailedError, match=r"worker-1 .* UnavailableError"):
        group.call("train", {}, timeout_s=TIMEOUT_S)
    assert first.signals[-1] == signal.SIGTERM


def test_of_two_deaths_the_one_reaped_first_is_the_cause(
    make_scripted: Maker,
) -> None:
    follower = ScriptedProcess(ExitStatus(signal=signal.SIGABRT, order=8))
    cause = ScriptedProcess(ExitStatus(signal=signal.SIGKILL, order=7))
    follower.theirs.close()
    group = make_scripted(follower, cause)
    with pytest.raises(TaskFailedError, match=r"worker-1 .* killed by SIGKILL"):
        group.call("train", {}, timeout_s=TIMEOUT_S)


def test_a_deadline_follows_the_clock_it_is_given(
    make_scripted: Maker,
) -> None:
    process = ScriptedProcess(None)
    ticks = iter(range(0, 10**9, 1000))
    group = make_scripted(process, clock=lambda: float(next(ticks)))
    with pytest.raises(TaskFailedError, match=r"deadline of 1500 s"):
        group.call("train", {}, timeout_s=1500.0)


def test_what_a_task_said_before_its_death_counts(
    make_scripted: Maker,
) -> None:
    process = ScriptedProcess(ExitStatus(code=70))
    process.say(**_COMPLAINT)
    group = make_scripted(process)
    with pytest.raises(TaskFailedError, match=r"raised UnavailableError"):
        group.call("train", {}, timeout_s=TIMEOUT_S)


def test_an_idle_group_is_asked_before_it_is_killed(
    make_scripted: Maker,
) -> None:
    process = ScriptedProcess(None)
    ends = threading.Thread(target=process.end_when_asked)
    ends.start()
    make_scripted(process).close()
    ends.join(TIMEOUT_S)
    assert process.asked == {"exit": True}
    assert process.signals == []


def test_the_tail_of_a_log_that_is_missing_is_empty(tmp_path: Path) -> None:
    assert read_tail(tmp_path / "none.log") == ""


def test_the_tail_of_a_log_may_hold_any_bytes(tmp_path: Path) -> None:
    log = tmp_path / "task.log"
    log.write_bytes(b"x" * 200_000 + b"\n\xff last\n")
    assert read_tail(log, lines=1) == "� last"


def test_stacks_are_shown_without_the_benchs_own_frames() -> None:
    dump = (
        "Thread 0x1 (most recent call first):\n"
        '  File "/x/distbench/launch/channel.py", line 126 in _read\n\n'
        "Current thread 0x2 (most recent call first):\n"
        '  File "/user.py", line 8 in train\n'
        '  File "/x/distbench/launch/bootstrap.py", line 64 in run_task\n'
        '  File "<frozen runpy>", line 88 in _run_code\n'
    )
    assert trim_stacks(dump) == (
        "Current thread 0x2 (most recent call first):\n"
        '  File "/user.py", line 8 in train'
    )
