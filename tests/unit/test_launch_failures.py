"""Who is blamed when a task fails, and what is told of it."""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from launch_support import FIRST, SECOND, TIMEOUT_S, Starter, open_starter
from swept import swept

from distbench.cluster import Task
from distbench.launch import blame
from distbench.launch import watch as watch_module
from distbench.launch.blame import Member
from distbench.launch.channel import BenchChannel
from distbench.launch.failure import TaskFailedError, read_tail, trim_stacks
from distbench.launch.group import Group
from distbench.launch.process import ExitStatus, TaskProcess
from distbench.launch.rundir import RunDirectory
from distbench.launch.watch import Look, Watch

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


def test_who_closes_the_channel_is_told_what_it_did(start: Starter) -> None:
    failure = catch_failure(start("one"), "close_descriptors")
    assert "closed descriptors that are not its own" in str(failure)
    assert failure.kind == "died"


def test_a_full_disk_is_told_with_what_to_do(start: Starter) -> None:
    failure = catch_failure(start("one"), "fill_disk")
    assert "No space left on device. The disk is full" in str(failure)
    assert "set TMPDIR" in str(failure)


def test_nothing_that_a_task_says_steers_a_terminal(start: Starter) -> None:
    failure = catch_failure(start("one"), "steer")
    assert "\\x1b]0;title\\x07" in str(failure)
    assert "\\x1b[2Jred\\u202e" in failure.detail
    for text in (str(failure), failure.detail):
        assert not set("\x1b\x07\u202e") & set(text)


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
    assert "no job 'no_such_job'. Expected one of ['bind', 'close_descriptors'" in str(
        failure
    )


def test_a_result_that_is_no_json_is_an_exception(start: Starter) -> None:
    failure = catch_failure(start("one"), "return_no_json")
    assert failure.exception == "TypeError"


class ScriptedProcess(TaskProcess):
    """Ends when the script says so; its channel's other end is the script's."""

    def __init__(self, *history: ExitStatus | None, pid: int = -1) -> None:
        self.pid = pid
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
        clock = options.get("clock", time.monotonic)
        script = {"look": lambda pid: None, "room_bytes": 1, **options.pop("watch", {})}
        watch = Watch(clock=clock, **script)
        return Group("scripted", members, watch=watch, **options)

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


def test_who_lost_a_peer_is_a_bystander_of_who_raised_later(
    make_scripted: Maker,
) -> None:
    bystander, cause = ScriptedProcess(None), ScriptedProcess(None)
    bystander.say(**{**_COMPLAINT, "kind": "peer"})
    cause.say(**{**_COMPLAINT, "exception": "KeyError", "kind": "subject"})
    group = make_scripted(bystander, cause)
    with pytest.raises(TaskFailedError, match=r"worker-1 .* KeyError") as caught:
        group.call("train", {}, timeout_s=TIMEOUT_S)
    assert caught.value.others == {
        FIRST: "is a bystander: it raised UnavailableError, because a peer was gone"
    }
    assert "What became of worker-0:\nis a bystander" in caught.value.detail


def test_a_living_task_that_its_peers_cannot_reach_is_named(
    make_scripted: Maker,
) -> None:
    complaining = [ScriptedProcess(None) for _ in range(2)]
    for process in complaining:
        process.say(**{**_COMPLAINT, "kind": "peer", "peer": "worker-2"})
    group = make_scripted(*complaining, ScriptedProcess(None))
    words = "worker-2 .* could not be reached any more by worker-0, worker-1 "
    with pytest.raises(TaskFailedError, match=words) as caught:
        group.call("train", {}, timeout_s=TIMEOUT_S)
    assert caught.value.kind == "peer"


def test_a_peer_that_nobody_can_name_is_nobodys_fault(make_scripted: Maker) -> None:
    process = ScriptedProcess(None)
    process.say(**{**_COMPLAINT, "kind": "peer"})
    with pytest.raises(TaskFailedError, match=r"worker-0 .* UnavailableError") as error:
        make_scripted(process).call("train", {}, timeout_s=TIMEOUT_S)
    assert error.value.kind == "peer"


def script_looks(**by_pid: list[Look]) -> dict[str, Any]:
    """What each look at a process shows; the last one stays."""
    scripts = {int(name.removeprefix("p")): looks for name, looks in by_pid.items()}

    def look(pid: int) -> Look | None:
        looks = scripts[pid]
        return looks.pop(0) if len(looks) > 1 else looks[0]

    return {"look": look}


RUNS, STOPPED = (Look(stopped=stopped, memory_bytes=100) for stopped in (False, True))


def test_a_task_that_stays_stopped_is_to_blame(make_scripted: Maker) -> None:
    waits, stopped = ScriptedProcess(None, pid=1), ScriptedProcess(None, pid=2)
    watch = script_looks(p1=[RUNS, STOPPED, RUNS], p2=[RUNS, STOPPED])
    clock = itertools.count(0.0, 0.1)
    group = make_scripted(waits, stopped, watch=watch, clock=lambda: next(clock))
    with pytest.raises(TaskFailedError, match=r"worker-1 .* was stopped") as caught:
        group.call("train", {}, timeout_s=1000.0)
    assert (caught.value.kind, caught.value.task) == ("stopped", SECOND)
    assert caught.value.others == {FIRST: "was still at work"}
    # Two looks, and what the bench asks its clock meanwhile: no deadline was awaited.
    assert next(clock) < 100.0


def test_a_task_that_is_stopped_for_a_moment_is_left_alone(
    make_scripted: Maker,
) -> None:
    process = ScriptedProcess(None, pid=1)
    clock = itertools.count(0.0, 0.5)
    watch = script_looks(p1=[RUNS, STOPPED, RUNS, STOPPED, RUNS])
    group = make_scripted(process, watch=watch, clock=lambda: next(clock))
    with pytest.raises(TaskFailedError, match="deadline of 20 s") as caught:
        group.call("train", {}, timeout_s=20.0)
    assert caught.value.kind == "timeout"


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"each_bytes": 5 << 20}, "took 7 MiB of memory, and 5 MiB a task may take"),
        ({"room_bytes": 9 << 20}, "took 7 MiB of memory, and 9 MiB was free for all"),
    ],
    ids=["each", "together"],
)
def test_a_task_that_takes_all_memory_is_ended_and_told(
    make_scripted: Maker, limits: dict[str, int], words: str
) -> None:
    modest, greedy = ScriptedProcess(None, pid=1), ScriptedProcess(None, pid=2)
    looks = {
        # What was there at first is shared with the server that it was forked from.
        f"p{pid}": [
            Look(stopped=False, memory_bytes=(50 + grown) << 20)
            for grown in (0, 1, most)
        ]
        for pid, most in ((1, 3), (2, 7))
    }
    clock = itertools.count(0.0, 0.5)
    group = make_scripted(
        modest, greedy, watch={**limits, **script_looks(**looks)}, clock=clock.__next__
    )
    with pytest.raises(TaskFailedError, match=words) as caught:
        group.call("train", {}, timeout_s=1000.0)
    assert (caught.value.kind, caught.value.task) == ("memory", SECOND)


def test_memory_within_the_limits_is_nobodys_business(make_scripted: Maker) -> None:
    process = ScriptedProcess(None, pid=1)
    looks = [Look(stopped=False, memory_bytes=size << 20) for size in (50, 54)]
    watch = {
        "each_bytes": 5 << 20,
        "room_bytes": 5 << 20,
        **script_looks(p1=looks),
    }
    clock = itertools.count(0.0, 0.5)
    group = make_scripted(process, watch=watch, clock=clock.__next__)
    with pytest.raises(TaskFailedError, match="deadline of 20 s"):
        group.call("train", {}, timeout_s=20.0)


def test_a_log_that_grows_without_end_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_module, "LOG_BYTES", 1000)
    monkeypatch.setattr(watch_module, "KEPT_BYTES", 10)
    log = tmp_path / "log"
    with log.open("ab", buffering=0) as file:
        file.write(b"x" * 1000)
        watch_module.cut_log(log)
        assert log.stat().st_size == 1000
        file.write(b"the end\n")
        watch_module.cut_log(log)
        # Its task goes on writing, and behind what was kept.
        file.write(b"and more")
    assert log.read_bytes() == b"xxthe end\nand more"
    watch_module.cut_log(tmp_path / "none")


HELD = {
    "words": "collective 7",
    "number": 7,
    "node": "Reduce",
    "shape": "[2]",
    "mismatch": False,
    "recent": ["7: all_reduce"],
}


def answer_when_asked(process: ScriptedProcess) -> threading.Thread:
    """Have a scripted task wait in a collective until it is told to give up."""

    def answer() -> None:
        with process.theirs.makefile("rb") as lines:
            for line in lines:
                if "give_up" in json.loads(line):
                    complaint = {**_COMPLAINT, "kind": "collective", "step": 3}
                    process.say(**complaint, collective=HELD)
                    return

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    return thread


def test_at_the_deadline_who_waits_for_others_is_not_to_blame(
    make_scripted: Maker,
) -> None:
    waits, stalls = ScriptedProcess(None), ScriptedProcess(None)
    thread = answer_when_asked(waits)
    group = make_scripted(waits, stalls)
    with pytest.raises(
        TaskFailedError, match=r"from: worker-1 .*\. worker-0 only"
    ) as e:
        group.call("train", {}, timeout_s=0.2)
    thread.join(TIMEOUT_S)
    assert (e.value.kind, e.value.task) == ("timeout", SECOND)
    assert e.value.collectives == {FIRST: HELD}
    assert e.value.others == {FIRST: "waited in collective 7"}


def test_a_failed_collective_has_the_others_say_where_they_wait(
    make_scripted: Maker,
) -> None:
    waits, fails = ScriptedProcess(None), ScriptedProcess(None)
    thread = answer_when_asked(waits)
    other = {**HELD, "shape": "[3]", "mismatch": True}
    fails.say(**{**_COMPLAINT, "kind": "collective"}, collective=other)
    group = make_scripted(waits, fails)
    with pytest.raises(TaskFailedError) as caught:
        group.call("train", {}, timeout_s=TIMEOUT_S)
    thread.join(TIMEOUT_S)
    assert caught.value.kind == "collective"
    assert caught.value.collectives == {FIRST: HELD, SECOND: other}


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
