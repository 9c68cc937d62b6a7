"""What the supervisor knows of each task, and the error it makes of that."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distbench.cluster import Task
from distbench.launch.channel import BenchChannel, Message
from distbench.launch.failure import TaskFailedError, collect_stacks, read_tail
from distbench.launch.process import ExitStatus, TaskProcess

_STACKS_S = 1.0


@dataclass(slots=True, kw_only=True)
class Member:
    """One task of a group, and all that is known of it.

    Attributes:
        task: Which task it is.
        channel: The connection to it.
        process: Its process.
        log: The file with its output.
        stacks: The file that it writes its Python stacks to.
        step: Last step number that it reported.
        phase: Last phase that it reported.
        result: What its job returned; None while it runs.
        failure: The `failed` event, if it sent one.
        exit: How its process ended; None while it lives.
        eof_at_s: When its channel ended.
    """

    task: Task
    channel: BenchChannel
    process: TaskProcess
    log: Path
    stacks: Path
    step: int | None = None
    phase: str | None = None
    result: dict[str, Any] | None = None
    failure: Message | None = None
    exit: ExitStatus | None = None
    eof_at_s: float | None = None

    @property
    def place(self) -> str:
        """Where it was last: `step 3, phase loss`, or `""` if it never said."""
        known = [f"step {self.step}"] if self.step is not None else []
        known += [f"phase {self.phase}"] if self.phase is not None else []
        return ", ".join(known)


def make_failure(
    name: str,
    job: str,
    culprit: Member,
    members: Iterable[Member],
    waiting: tuple[Task, ...],
) -> TaskFailedError:
    """The error for a task that raised, or whose process ended.

    Args:
        name: The cluster, for the message.
        job: The job, for the message.
        culprit: Who is to blame.
        members: The whole group; the living are asked for their stacks.
        waiting: Who had not answered.
    """
    failure = culprit.failure or {}
    ended = culprit.exit or ExitStatus()
    culprit.step = failure.get("step", culprit.step)
    culprit.phase = failure.get("phase", culprit.phase)
    place = f", last at {culprit.place}" if culprit.place else ""
    if failure:
        what, why = f"raised {failure['exception']}", f": {failure['message']}"
    elif ended.signal == signal.SIGKILL:
        what = str(ended)
        why = ". Linux does so when memory runs out: see 'dmesg' and use fewer tasks."
    else:
        what, why = str(ended), ". Its log shows what it did last."
    return TaskFailedError(
        f"Task {culprit.task} of '{name}' {what} in job {job!r}{place}{why}",
        task=culprit.task,
        kind=failure.get("kind", "died"),
        exception=failure.get("exception", ""),
        message=failure.get("message", ""),
        traceback=failure.get("traceback", ""),
        frame=failure.get("frame", ""),
        exit_code=ended.code,
        signal=ended.signal,
        step=culprit.step,
        phase=culprit.phase,
        replica=failure.get("replica"),
        waiting=waiting,
        **_gather_detail(members),
    )


def make_timeout(
    name: str,
    job: str,
    timeout_s: float,
    members: Iterable[Member],
    waiting: tuple[Task, ...],
) -> TaskFailedError:
    """The error for a job whose deadline has passed."""
    members = tuple(members)
    late = [member for member in members if member.task in waiting]
    places = (f"{m.task} ({m.place or 'no step reported'})" for m in late)
    return TaskFailedError(
        f"Job {job!r} of '{name}' passed its deadline of {timeout_s:g} s. No answer "
        f"from: {', '.join(places)}. The Python stacks show where they wait; if they "
        "were merely slow, give the job more time.",
        task=late[0].task,
        kind="timeout",
        step=late[0].step,
        phase=late[0].phase,
        waiting=waiting,
        **_gather_detail(members),
    )


def _gather_detail(members: Iterable[Member]) -> dict[str, Any]:
    """Log tails of all tasks, and stacks of those that live and did not raise."""
    members = tuple(members)
    asked = [m for m in members if m.exit is None and m.failure is None]
    return {
        "stacks": collect_stacks(
            {m.task: m.process for m in asked},
            {m.task: m.stacks for m in asked},
            timeout_s=_STACKS_S,
        ),
        "log_tails": {m.task: read_tail(m.log) for m in members},
    }
