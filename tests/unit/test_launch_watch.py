"""What the supervisor sees of tasks by itself: stopped, too large, or too loud."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from launch_support import FIRST, SECOND
from scripted_group import Maker, ScriptedProcess, tick

from distbench.launch import watch as watch_module
from distbench.launch.failure import TaskFailedError
from distbench.launch.injury import Injury
from distbench.launch.process import ExitStatus
from distbench.launch.watch import Look

RUNS, STOPPED = (Look(stopped=stopped, memory_bytes=100) for stopped in (False, True))


def script_looks(**by_pid: list[Look]) -> dict[str, Any]:
    """What each look at a process shows; the last one stays."""
    scripts = {int(name.removeprefix("p")): looks for name, looks in by_pid.items()}

    def look(pid: int) -> Look | None:
        looks = scripts[pid]
        return looks.pop(0) if len(looks) > 1 else looks[0]

    return {"look": look}


def test_a_task_that_stays_stopped_is_to_blame(make_scripted: Maker) -> None:
    waits, stopped = ScriptedProcess(None, pid=1), ScriptedProcess(None, pid=2)
    watch = script_looks(p1=[RUNS, STOPPED, RUNS], p2=[RUNS, STOPPED])
    clock = tick(0.1)
    group = make_scripted(waits, stopped, watch=watch, clock=clock)
    with pytest.raises(TaskFailedError, match=r"worker-1 .* was stopped") as caught:
        group.call("train", {}, deadline=1000.0)
    assert (caught.value.kind, caught.value.task) == ("stopped", SECOND)
    assert caught.value.others == {FIRST: "was still at work"}
    # Two looks, and what the bench asks its clock meanwhile: no deadline was awaited.
    assert clock() < 100.0


def test_a_task_that_is_stopped_for_a_moment_is_left_alone(
    make_scripted: Maker,
) -> None:
    process = ScriptedProcess(None, pid=1)
    watch = script_looks(p1=[RUNS, STOPPED, RUNS, STOPPED, RUNS])
    group = make_scripted(process, watch=watch, clock=tick(0.5))
    with pytest.raises(TaskFailedError, match="deadline of 20 s") as caught:
        group.call("train", {}, deadline=20.0)
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
    group = make_scripted(
        modest, greedy, watch={**limits, **script_looks(**looks)}, clock=tick(0.5)
    )
    with pytest.raises(TaskFailedError, match=words) as caught:
        group.call("train", {}, deadline=1000.0)
    assert (caught.value.kind, caught.value.task) == ("memory", SECOND)


def test_memory_within_the_limits_is_nobodys_business(make_scripted: Maker) -> None:
    process = ScriptedProcess(None, pid=1)
    looks = [Look(stopped=False, memory_bytes=size << 20) for size in (50, 54)]
    watch = {
        "each_bytes": 5 << 20,
        "room_bytes": 5 << 20,
        **script_looks(p1=looks),
    }
    group = make_scripted(process, watch=watch, clock=tick(0.5))
    with pytest.raises(TaskFailedError, match="deadline of 20 s"):
        group.call("train", {}, deadline=20.0)


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


def test_memory_that_a_job_takes_at_once_counts(make_scripted: Maker) -> None:
    """Tasks are looked at before they have one: later it would be theirs from first."""
    process, taken = ScriptedProcess(None, pid=1), [50 << 20]
    watch = {
        "each_bytes": 5 << 20,
        "look": lambda _: Look(stopped=False, memory_bytes=taken[0]),
    }
    group = make_scripted(process, watch=watch, clock=tick(0.5))
    taken[0] += 7 << 20
    with pytest.raises(TaskFailedError, match="took 7 MiB of memory"):
        group.call("train", {}, deadline=20.0)


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_task_that_is_stopped_for_good_is_missed_by_nobody_who_goes_on(
    make_scripted: Maker, goes_on: bool
) -> None:
    class Late(ScriptedProcess):
        looks = 0

        def poll(self) -> ExitStatus | None:
            self.looks += 1
            if self.looks == 50:
                self.say(event="finished", result={"steps": 3})
            return super().poll()

    lives, stops = Late(None, pid=1), ScriptedProcess(None, pid=2)
    group = make_scripted(
        lives, stops, watch=script_looks(p1=[RUNS], p2=[RUNS, STOPPED]), clock=tick(0.1)
    )
    stop = Injury(number=signal.SIGSTOP, step=1, task=SECOND, goes_on=goes_on)
    group.injure(stop)
    stops.say(event="progress", step=1, phase="loss", waits=False)
    if goes_on:
        results = group.call("train", {}, deadline=1000.0)
        assert results == {FIRST: {"steps": 3}, SECOND: {}}
        assert group.lost == (SECOND,)
    else:
        with pytest.raises(TaskFailedError, match=r"worker-1 .* was stopped"):
            group.call("train", {}, deadline=1000.0)
    assert stops.signals[0] == signal.SIGSTOP
