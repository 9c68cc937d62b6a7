"""Whom the supervisor blames, by scripted histories of what tasks do."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from launch_support import FIRST, SECOND, TIMEOUT_S
from scripted_group import COMPLAINT, Maker, ScriptedProcess, tick

from distbench.launch.channel import Message
from distbench.launch.deadline import Deadline
from distbench.launch.failure import TaskFailedError, read_tail, trim_stacks
from distbench.launch.notes import Notes
from distbench.launch.process import ExitStatus

IN_LIBRARY = """\
Fatal Python error: Segmentation fault

Thread 0x1 (most recent call first):
  File "/my/own.py", line 9 in step
"""
IN_PYTHON = """\
Fatal Python error: Segmentation fault

Current thread 0x1 (most recent call first):
  File "/usr/x/site-packages/y.py", line 519 in string_at
  File "/my/own.py", line 7 in hit
  File "/my/own.py", line 9 in step

Thread 0x2 (most recent call first):
  File "/my/own.py", line 3 in wait
"""


@pytest.mark.parametrize(
    ("number", "words"), [(9, "was killed by SIGKILL"), (40, "was killed by signal 40")]
)
def test_a_signal_without_a_name_is_told_by_its_number(number: int, words: str) -> None:
    assert str(ExitStatus(signal=number)) == words


def test_what_came_while_the_bench_stood_still_came_in_time(
    make_scripted: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, now = ScriptedProcess(None), [0.0]
    group = make_scripted(answers, clock=lambda: now[0])
    selector = group._events.selector

    def stand_still(timeout: float) -> list[Any]:
        monkeypatch.undo()
        answers.say(event="finished", result={"steps": 3})
        now[0] += 100 * timeout + 100
        return []  # a wait that was interrupted looks no more than that

    monkeypatch.setattr(selector, "select", stand_still)
    assert group.call("train", {}, deadline=10.0)[FIRST] == {"steps": 3}


def test_a_death_that_comes_in_after_the_complaint_is_the_cause(
    make_scripted: Maker,
) -> None:
    complains = ScriptedProcess(None)
    dies = ScriptedProcess(None, ExitStatus(signal=signal.SIGSEGV))
    complains.say(**COMPLAINT)
    group = make_scripted(complains, dies)
    with pytest.raises(TaskFailedError, match=r"worker-1 .* killed by SIGSEGV"):
        group.call("train", {}, deadline=TIMEOUT_S)


def test_the_first_of_several_exceptions_is_the_cause(
    make_scripted: Maker,
) -> None:
    first, second = ScriptedProcess(None), ScriptedProcess(None)
    second.say(**COMPLAINT)
    group = make_scripted(first, second, clock=tick(0.1))
    with pytest.raises(TaskFailedError, match=r"worker-1 .* UnavailableError"):
        group.call("train", {}, deadline=TIMEOUT_S)
    assert first.signals[-1] == signal.SIGTERM


def test_of_those_that_raise_alike_the_first_in_order_is_named(
    make_scripted: Maker,
) -> None:
    class Slow(ScriptedProcess):
        has_raised = False

        def poll(self) -> ExitStatus | None:  # asked when the quick one has been heard
            if not self.has_raised:
                self.say(**alike)
                self.has_raised = True
            return super().poll()

    alike = {**COMPLAINT, "exception": "KeyError", "step": 2, "phase": "slot"}
    slow, quick = Slow(None), ScriptedProcess(None)
    quick.say(**alike)
    group = make_scripted(slow, quick)
    with pytest.raises(TaskFailedError, match=r"worker-0 .* KeyError") as caught:
        group.call("train", {}, deadline=TIMEOUT_S)
    assert caught.value.others == {SECOND: "raised KeyError as well"}


def test_who_lost_a_peer_is_a_bystander_of_who_raised_later(
    make_scripted: Maker,
) -> None:
    bystander, cause = ScriptedProcess(None), ScriptedProcess(None)
    bystander.say(**{**COMPLAINT, "kind": "peer", "traceback": "in its sum"})
    cause.say(**{**COMPLAINT, "exception": "KeyError", "kind": "subject"})
    group = make_scripted(bystander, cause)
    with pytest.raises(TaskFailedError, match=r"worker-1 .* KeyError") as caught:
        group.call("train", {}, deadline=TIMEOUT_S)
    assert caught.value.others == {
        FIRST: "is a bystander: it raised UnavailableError, because a peer was gone"
    }
    assert "What became of worker-0:\nis a bystander" in caught.value.detail
    assert caught.value.stacks == {FIRST: "in its sum"}


def test_a_living_task_that_its_peers_cannot_reach_is_named(
    make_scripted: Maker,
) -> None:
    complaining = [ScriptedProcess(None) for _ in range(2)]
    for process in complaining:
        process.say(**{**COMPLAINT, "kind": "peer", "peer": "worker-2"})
    everyone = (*complaining, ScriptedProcess(None))
    group = make_scripted(*everyone, clock=tick(0.1))
    words = "worker-2 .* could not be reached any more by worker-0, worker-1 "
    with pytest.raises(TaskFailedError, match=words) as caught:
        group.call("train", {}, deadline=TIMEOUT_S)
    assert caught.value.kind == "peer"


def test_a_peer_that_nobody_can_name_is_nobodys_fault(make_scripted: Maker) -> None:
    process = ScriptedProcess(None)
    process.say(**{**COMPLAINT, "kind": "peer"})
    with pytest.raises(TaskFailedError, match=r"worker-0 .* UnavailableError") as error:
        make_scripted(process).call("train", {}, deadline=TIMEOUT_S)
    assert error.value.kind == "peer"


HELD = {
    "words": "collective 7",
    "number": 7,
    "node": "Reduce",
    "shape": "[2]",
    "mismatch": False,
}


def make_waiting() -> ScriptedProcess:
    """A task that waits in a collective until it is told to give up."""
    process = ScriptedProcess(None)

    def hear(message: Message) -> None:
        if "give_up" in message:
            complaint = {**COMPLAINT, "kind": "collective", "step": 3}
            process.say(**complaint, collective=HELD)

    process.hear = hear
    return process


def test_at_the_deadline_who_waits_for_others_is_not_to_blame(
    make_scripted: Maker,
) -> None:
    waits, stalls = make_waiting(), ScriptedProcess(None)
    clock = tick(0.05)
    group, shared = make_scripted(waits, stalls, clock=clock), Deadline(30, clock=clock)
    while shared.left_s > 1:
        pass  # other jobs take it
    with pytest.raises(
        TaskFailedError, match=r"from: worker-1 .*\. worker-0 only"
    ) as e:
        group.call("train", {}, deadline=shared)
    assert (e.value.kind, e.value.task) == ("timeout", SECOND)
    # What the user has set, and what other jobs have left of it.
    assert "deadline of 30 s, of which 0.95 s were left for it." in str(e.value)
    assert e.value.collectives == {FIRST: HELD}
    assert e.value.others == {FIRST: "waited in collective 7"}


def test_who_raises_as_the_deadline_passes_is_told_with_what_it_raised(
    make_scripted: Maker,
) -> None:
    class Late(ScriptedProcess):
        def send_signal(self, number: signal.Signals) -> None:
            super().send_signal(number)
            if number == signal.SIGUSR1:  # the deadline has passed
                self.say(**{**COMPLAINT, "exception": "KeyError", "kind": "subject"})

    group = make_scripted(make_waiting(), Late(None), clock=tick(0.1))
    with pytest.raises(TaskFailedError, match=r"worker-1 .* KeyError") as caught:
        group.call("train", {}, deadline=5.0)
    assert (caught.value.kind, caught.value.task) == ("subject", SECOND)


def test_a_failed_collective_has_the_others_say_where_they_wait(
    make_scripted: Maker,
) -> None:
    waits, fails = make_waiting(), ScriptedProcess(None)
    other = {**HELD, "shape": "[3]", "mismatch": True}
    fails.say(**{**COMPLAINT, "kind": "collective"}, collective=other)
    group = make_scripted(waits, fails, clock=tick(0.1))
    with pytest.raises(TaskFailedError) as caught:
        group.call("train", {}, deadline=TIMEOUT_S)
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
        group.call("train", {}, deadline=TIMEOUT_S)


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (signal.SIGKILL, "memory runs out"),
        (signal.SIGABRT, "ulimit -u"),
        (signal.SIGXCPU, "ulimit -t"),
        (signal.SIGSEGV, r"what it did last\.$"),
        (signal.SIGBUS, "It had printed nothing"),
    ],
)
def test_a_signal_says_why_a_process_may_have_ended(
    make_scripted: Maker, number: signal.Signals, words: str
) -> None:
    process = ScriptedProcess(ExitStatus(signal=number))
    process.theirs.close()
    group = make_scripted(process)
    with pytest.raises(TaskFailedError, match=words):
        group.call("train", {}, deadline=TIMEOUT_S)


def test_who_ends_by_an_exit_code_is_told_to_look_for_what_exits(
    make_scripted: Maker,
) -> None:
    process = ScriptedProcess(ExitStatus(code=5))
    process.theirs.close()
    with pytest.raises(TaskFailedError, match=r"exit code 5 .*look for os\._exit"):
        make_scripted(process).call("train", {}, deadline=TIMEOUT_S)


@pytest.mark.parametrize(
    ("collective", "log", "words"),
    [
        ("all_gather", IN_LIBRARY, r"\. Its log shows what it did last\. .*no rows"),
        ("all_gather", IN_PYTHON, r"\. It crashed at /my/own\.py:7 in hit\. Its log "),
        ("all_reduce", IN_LIBRARY, r"\. Its log shows what it did last\.$"),
        ("all_reduce", IN_PYTHON, r" at /my/own\.py:7 in hit\. Its [^.]*\.$"),
    ],
)
def test_a_gather_is_named_where_one_may_have_crashed(
    make_scripted: Maker, tmp_path: Path, collective: str, log: str, words: str
) -> None:
    process = ScriptedProcess(ExitStatus(signal=signal.SIGSEGV))
    process.theirs.close()
    group = make_scripted(process, ScriptedProcess(None))
    # The gather of a step may lie before many sums.
    notes = Notes(tmp_path / "notes-0")
    for number, kind in enumerate([collective, *["all_reduce"] * 20]):
        notes.add(f"collective {number}, {kind} of 'x:0' (float32 [3])")
    (tmp_path / "log").write_text(log)
    with pytest.raises(TaskFailedError, match=words):
        group.call("train", {}, deadline=TIMEOUT_S)


def test_a_deadline_follows_the_clock_it_is_given(
    make_scripted: Maker,
) -> None:
    process = ScriptedProcess(None)
    group = make_scripted(process, clock=tick(1000.0))
    with pytest.raises(TaskFailedError, match=r"deadline of 1500 s"):
        group.call("train", {}, deadline=1500.0)


def test_what_a_task_said_before_its_death_counts(
    make_scripted: Maker,
) -> None:
    process = ScriptedProcess(ExitStatus(code=70))
    process.say(**COMPLAINT)
    group = make_scripted(process)
    with pytest.raises(TaskFailedError, match=r"raised UnavailableError"):
        group.call("train", {}, deadline=TIMEOUT_S)


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


def test_the_tail_of_a_log_begins_before_a_crash(tmp_path: Path) -> None:
    log = tmp_path / "task.log"
    before = "".join(f"line {n}\n" for n in range(50))
    log.write_text(before + IN_PYTHON + "  File waits\n" * 100)
    tail = read_tail(log).splitlines()
    assert len(tail) == 40
    assert tail[0] == "line 40"
    assert tail[10:12] == ["Fatal Python error: Segmentation fault", ""]
    log.write_text(before + IN_PYTHON)
    assert read_tail(log) == "\n".join((before + IN_PYTHON).splitlines()[-40:])


def test_the_tail_of_a_log_may_hold_any_bytes(tmp_path: Path) -> None:
    log = tmp_path / "task.log"
    log.write_bytes(b"x" * 200_000 + b"\n\xff last\n")
    assert read_tail(log).splitlines()[-1] == "� last"
    with log.open("a") as file:
        file.write("Extension modules: numpy.linalg._umath_linalg (total: 1)\n")
    assert read_tail(log).splitlines()[-1] == "� last"


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
