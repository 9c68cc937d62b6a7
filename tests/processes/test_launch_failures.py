"""Who is blamed when a task fails, and what is told of it."""

from __future__ import annotations

import os
import re
import signal
from typing import Any

import psutil
import pytest
from launch_support import FIRST, SECOND, TIMEOUT_S, Starter
from swept import swept

from distbench.cluster import Task
from distbench.launch import group as group_module
from distbench.launch.failure import TaskFailedError
from distbench.launch.group import Group


def catch_failure(
    group: Group, job: str, payload: Any = None, **options: Any
) -> TaskFailedError:
    options = {"deadline": TIMEOUT_S, **options}
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
    group.call("echo", {}, deadline=TIMEOUT_S)
    payload = {str(task): {"do": "wait"} for task in group.tasks}
    payload[str(SECOND)] = {"do": "fail"}
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


@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_an_exit_is_seen_by_a_bench_that_hears_no_signals(
    start: Starter, how: str
) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        # A server of its own, that inherits what is blocked.
        group = start("one", start=how, environment={"HEARS_NO_SIGNALS": "1"})
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert group.call("describe", {}, deadline=TIMEOUT_S)[FIRST]["blocked"] == []
    assert catch_failure(group, "exit").exit_code == 3


@pytest.mark.parametrize("how", ["fork", *swept("spawn")])
def test_a_kill_is_told_with_its_signal(start: Starter, how: str) -> None:
    failure = catch_failure(start("one", start=how), "kill")
    assert (failure.kind, failure.exit_code, failure.signal) == ("died", None, 9)
    assert "was killed by SIGKILL" in str(failure)
    assert "last at collective 7, all_reduce" in str(failure)
    assert "Last collectives of worker-0:\ncollective 7, all_reduce" in failure.detail


def test_a_task_that_takes_more_memory_than_it_may_is_ended(start: Starter) -> None:
    group = start("one", memory_bytes=1 << 23)
    failure = catch_failure(group, "take_memory", {"size_bytes": 1 << 26})
    assert failure.kind == "memory"
    assert "MiB of memory, and 8 MiB a task may take" in str(failure)


def test_who_closes_the_channel_is_told_what_it_did(start: Starter) -> None:
    failure = catch_failure(start("one"), "close_descriptors")
    assert "closed descriptors that are not its own" in str(failure)
    assert failure.kind == "died"


@pytest.mark.parametrize(
    "text",
    [
        "junk\n",
        "\n",
        '{"event": "progress"}\n',
        '{"event": ["finished"]}\n',
        "7\n",
        "[" * 10**4 + "\n",
    ],
    ids=["no-json", "empty", "no-step", "no-event", "number", "deep"],
)
def test_what_no_task_says_is_an_error(start: Starter, text: str) -> None:
    payload = {"worker-0": {"do": "wait"}, "worker-1": {"do": "garble", "text": text}}
    failure = catch_failure(start(), "mixed", payload)
    assert (failure.task, failure.kind) == (SECOND, "bench")
    assert f"connection to the bench had {text[:-1].encode()[:80]!r} on it" in str(
        failure
    )


def test_a_full_disk_is_told_with_what_to_do(start: Starter) -> None:
    failure = catch_failure(start("one"), "fill_disk")
    assert "No space left on device. The disk is full" in str(failure)
    assert "set TMPDIR" in str(failure)
    assert "Traceback" not in failure.detail


def test_nothing_that_a_task_says_steers_a_terminal(start: Starter) -> None:
    failure = catch_failure(start("one"), "steer")
    assert "\\x1b]0;title\\x07" in str(failure)
    assert "\\x1b[2Jred\\u202e" in failure.detail
    for text in (str(failure), failure.detail):
        assert not set("\x1b\x07\u202e") & set(text)


@pytest.mark.parametrize("how", ["fork", *swept("spawn")])
def test_no_letter_stops_what_a_task_prints(start: Starter, how: str) -> None:
    group = start("one", start=how, environment={"PYTHONIOENCODING": "ascii"})
    group.call("print", {"text": "κόσμε"}, deadline=TIMEOUT_S)
    assert group.read_logs()[FIRST] == r"\u03ba\u03cc\u03c3\u03bc\u03b5"


def test_an_exception_that_cannot_be_told_is_still_the_tasks(start: Starter) -> None:
    failure = catch_failure(start("one"), "raise_unspeakable")
    assert failure.exception == "UnspeakableError"
    assert failure.message == "(its __str__ raises ZeroDivisionError)"


def test_an_exception_that_cannot_be_looked_at_is_named(start: Starter) -> None:
    failure = catch_failure(start("one"), "raise_untouchable")
    assert failure.kind == "bench"
    assert failure.message.startswith("UntouchableError, and to look at it raises")
    assert "ZeroDivisionError" in failure.message


def test_a_message_without_end_is_cut(start: Starter) -> None:
    failure = catch_failure(start("one"), "raise_at_length", {"length": 10**7})
    assert failure.message.startswith("begin")
    assert failure.message.endswith("end")
    assert len(str(failure)) + len(failure.detail) < 10**5


def test_the_words_of_an_exception_of_many_lines_are_shown_as_both_ends(
    start: Starter,
) -> None:
    payload = {"length": 10**6, "text": "x\n"}
    failure = catch_failure(start("one"), "raise_at_length", payload)
    lines = failure.traceback.splitlines()
    assert len(lines) == 301
    assert re.fullmatch(r"\.\.\. \(99\d{4} lines left out\) \.\.\.", lines[150])
    assert lines[-1] == "end"


def test_a_system_exit_is_an_exception(start: Starter) -> None:
    failure = catch_failure(start("one"), "leave")
    assert (failure.exception, failure.message) == ("SystemExit", "leaving")


def test_a_death_is_blamed_and_not_those_who_complain_of_it(start: Starter) -> None:
    payload = {"worker-0": {"do": "fail"}, "worker-1": {"do": "kill"}}
    group = start()
    group.call("echo", {}, deadline=TIMEOUT_S)
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

    payload = {"worker-0": {"do": "echo"}, "worker-1": {"do": "wait"}}
    failure = catch_failure(group, "mixed", payload, on_progress=kill_first)
    assert failure.task == FIRST


def test_a_death_between_calls_is_found_by_the_next(start: Starter) -> None:
    group = start("one")
    os.kill(group.pids[FIRST], signal.SIGKILL)
    assert catch_failure(group, "echo").signal == signal.SIGKILL


@pytest.mark.parametrize("job", ["wait", "stop"])
def test_a_deadline_shows_where_each_task_is(
    start: Starter, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_module, "_GIVE_UP_S", 0.0)
    payload = {"worker-0": {"do": "echo"}, "worker-1": {"do": job}}
    group = start()
    group.call("echo", {}, deadline=TIMEOUT_S)
    failure = catch_failure(group, "mixed", payload, deadline=0.25)
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
        group.call("echo", {}, deadline=TIMEOUT_S)
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
