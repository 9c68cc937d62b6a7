"""What the supervisor knows of each task of a group."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from distbench.cluster import Task
from distbench.launch.channel import BenchChannel, Message
from distbench.launch.notes import read_notes
from distbench.launch.process import ExitStatus, TaskProcess


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Why a task that lives has to be ended.

    Attributes:
        kind: `stopped`, `memory` or, where peers alone complain of it, `peer`.
        words: What it did, to follow its name.
        advice: What to do about it.
    """

    kind: Literal["stopped", "memory", "peer"]
    words: str
    advice: str


@dataclass(slots=True, kw_only=True)
class Member:
    """One task of a group, and all that is known of it.

    Attributes:
        task: Which task it is.
        channel: The connection to it.
        process: Its process.
        log: The file with its output.
        stacks: The file that it writes its Python stacks to.
        notes: The file in which it takes down what it does.
        step: Last step number that it reported.
        phase: Last phase that it reported.
        result: What its job returned; None while it runs.
        failure: The `failed` event, if it sent one.
        trouble: Why it has to be ended, if it lives and was seen in trouble.
        exit: How its process ended; None while it lives.
        eof_at_s: When its channel ended.
        restart: Starts the task again, and gives it its first job; None where it can
            not be.
        has_first_job: Whether there is such a job.
        is_restarting: Whether it was started again, and has not finished that job a
            second time, which is nobody's next one.
    """

    task: Task
    channel: BenchChannel
    process: TaskProcess
    log: Path
    stacks: Path
    notes: Path
    step: int | None = None
    phase: str | None = None
    result: dict[str, Any] | None = None
    failure: Message | None = None
    trouble: Trouble | None = None
    exit: ExitStatus | None = None
    eof_at_s: float | None = None
    restart: Callable[[], tuple[BenchChannel, TaskProcess]] | None = None
    has_first_job: bool = False
    is_restarting: bool = False

    @property
    def place(self) -> str:
        """Where it was last: `step 3, phase loss`, or `""` if it never said."""
        known = [f"step {self.step}"] if self.step is not None else []
        known += [f"phase {self.phase}"] if self.phase is not None else []
        return ", ".join(known)

    @property
    def last(self) -> str:
        """`place`, with the last collective that it began, if it came to one."""
        return ", ".join(filter(None, [self.place, *read_notes(self.notes)[-1:]]))

    @property
    def lost_peer(self) -> bool:
        """Whether it complains of nothing but that a peer is gone."""
        return (self.failure or {}).get("kind") == "peer"

    @property
    def raised_itself(self) -> bool:
        """Whether it raised something that has to do with no other task."""
        is_own = not self.lost_peer and self.collective is None
        return self.failure is not None and is_own

    @property
    def peer(self) -> str | None:
        """The task that it could not reach any more, as text, if it named one."""
        return (self.failure or {}).get("peer") if self.lost_peer else None

    @property
    def collective(self) -> dict[str, Any] | None:
        """In what it waited for the others when it was told to give up, or None."""
        found = (self.failure or {}).get("collective")
        return found if isinstance(found, dict) else None

    def raises_like(self, other: Member) -> bool:
        """Whether both raised the same exception at the same place."""
        mine, theirs = self.failure or {}, other.failure or {}
        keys = ("kind", "exception", "step", "phase", "frame")
        return all(mine.get(key) == theirs.get(key) for key in keys)
