"""What a group takes in of its tasks, from a script."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from scripted_group import ScriptedChannel, ScriptedProcess

from distbench.cluster import Task
from distbench.launch.events import Events
from distbench.launch.injury import Injury
from distbench.launch.member import Member
from distbench.launch.watch import Watch

WORKER = Task(role="worker", index=0)


@pytest.mark.parametrize("has_first_job", [True, False])
def test_a_first_job_that_is_run_again_is_nobody_s_result(
    tmp_path: Path, has_first_job: bool
) -> None:
    """It may end when the task has its next job already."""
    first, second = ScriptedProcess(None), ScriptedProcess(None)
    member = Member(
        task=WORKER,
        channel=ScriptedChannel(first),
        process=first,
        log=tmp_path / "log",
        stacks=tmp_path / "stacks",
        notes=tmp_path / "notes",
        result={"bound": 1},
        restart=lambda: (ScriptedChannel(second), second),
        has_first_job=has_first_job,
    )
    watch = Watch(clock=time.monotonic, look=lambda pid: None, room_bytes=1)
    events = Events([member], watch=watch)
    events.injure(
        [Injury(number=signal.SIGKILL, step=1, task=WORKER, restarts=True)],
    )
    first.say(event="progress", step=1, phase="loss", waits=False)
    while member.process is first:
        events.pump(1.0)
    if has_first_job:
        second.say(event="finished", result={})
        events.pump(1.0)
    assert (member.result, events.broken) == ({"bound": 1}, [])
    second.say(event="finished", result={"echo": 2})
    events.pump(1.0)
    assert member.result == {"echo": 2}
    events.selector.close()
    for process in (first, second):
        process.ours.close()
        process.theirs.close()
