"""What no event tells of: a task that was stopped, takes all memory, or fills its log.

A look costs some reads of `/proc` for each task, several times in a second.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import psutil

from distbench.launch.member import Member, Trouble
from distbench.machine import measure_memory

LOOK_S = 0.25
"""Between two looks. Stopped is who is found so twice: a debugger stops a process for
a moment when it attaches."""
LOG_BYTES = 1 << 26
"""A log that is longer is cut."""
KEPT_BYTES = 1 << 16
"""What is left of a log that was cut."""
_SPARE = 0.1
_BUSY = 0.03
"""Of a processor, what a task takes at least that computes, on a busy machine as well;
one that waits for others takes next to nothing."""
_STRETCH_S = 0.5
"""Over how long that is measured: systems count in hundredths of a second."""
Stretch = tuple[float, float]
"""Monotonic seconds at which something began and ended."""
NEVER: Stretch = (0.0, 0.0)
_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A process at a moment.

    Attributes:
        stopped: Whether a signal such as SIGSTOP holds it.
        memory_bytes: Its resident memory, without that of files.
        computed_s: Processor seconds that it has taken so far.
    """

    stopped: bool
    memory_bytes: int
    computed_s: float = 0.0


class Watcher(Protocol):
    """Who looks for trouble that no event tells of."""

    @property
    def computing(self) -> Stretch:
        """When a task computed last, as far as looks tell."""
        ...

    def find_trouble(self, members: Iterable[Member]) -> list[tuple[Member, Trouble]]:
        """Look at tasks, if it is time: who has to be ended, and why."""
        ...


class Watch:
    """Looks at the tasks of one group on one machine.

    Args:
        each_bytes: What a task may take; None is no limit.
        room_bytes: What they may take together; None asks the machine now.
        look: How to look at a process; None is answered for one that is gone.
        clock: Monotonic time in seconds.
    """

    def __init__(
        self,
        *,
        each_bytes: int | None = None,
        room_bytes: int | None = None,
        look: Callable[[int], Look | None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._each_bytes = each_bytes
        self._room_bytes = measure_room() if room_bytes is None else room_bytes
        self._look = look or look_at
        self._clock = clock
        self._next_s = clock()
        self.computing = NEVER
        # Of a fork most memory is its server's: only what came after counts.
        self._at_first: dict[int, int] = {}
        self._stopped: set[int] = set()
        self._computed: dict[int, tuple[float, float]] = {}

    def find_trouble(self, members: Iterable[Member]) -> list[tuple[Member, Trouble]]:
        """Look at tasks, if it is time: who has to be ended, and why."""
        if self._clock() < self._next_s:
            return []
        self._next_s = self._clock() + LOOK_S
        found: list[tuple[Member, Trouble]] = []
        taken: list[tuple[int, Member]] = []
        for member in members:
            cut_log(member.log)
            pid = member.process.pid
            seen = self._look(pid)
            if seen is None:
                continue
            if seen.stopped and pid in self._stopped:
                found.append((member, _STOPPED))
            (self._stopped.add if seen.stopped else self._stopped.discard)(pid)
            self._note_computing(pid, seen.computed_s)
            first = self._at_first.setdefault(pid, seen.memory_bytes)
            taken.append((seen.memory_bytes - first, member))
        return found + self._find_greedy(taken)

    def _note_computing(self, pid: int, computed_s: float) -> None:
        now_s = self._clock()
        then_s, before_s = self._computed.setdefault(pid, (now_s, computed_s))
        if now_s - then_s < _STRETCH_S:
            return
        if computed_s - before_s > _BUSY * (now_s - then_s):
            self.computing = (then_s, now_s)
        self._computed[pid] = (now_s, computed_s)

    def _find_greedy(
        self, taken: list[tuple[int, Member]]
    ) -> list[tuple[Member, Trouble]]:
        limit = self._each_bytes
        if limit is not None:
            over = [(m, b) for b, m in taken if b > limit]
            return [(m, _make_greedy(b, limit, "a task may take")) for m, b in over]
        if taken and sum(size for size, _ in taken) > self._room_bytes:
            size, member = max(taken, key=lambda pair: pair[0])
            rest = "was free for all tasks together"
            return [(member, _make_greedy(size, self._room_bytes, rest))]
        return []


_STOPPED = Trouble(
    kind="stopped",
    words="was stopped by a signal such as SIGSTOP",
    advice=". It did not end by itself; the Python stacks show where it was held.",
)


def _make_greedy(size: int, limit: int, whose: str) -> Trouble:
    return Trouble(
        kind="memory",
        words=(f"took {size // _MIB} MiB of memory, and {limit // _MIB} MiB {whose}"),
        advice=(
            ", so it was ended before the machine ran out. Its Python stack shows what "
            "it did; use a smaller model, fewer tasks, or a machine with more memory."
        ),
    )


def look_at(pid: int) -> Look | None:
    """Look at a process; None if it is gone."""
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            memory = process.memory_info()
            status = process.status()
            times = process.cpu_times()
    except psutil.Error:
        return None
    return Look(
        stopped=status == psutil.STATUS_STOPPED,
        memory_bytes=memory.rss - getattr(memory, "shared", 0),
        computed_s=times.user + times.system,
    )


def measure_room() -> int:
    """How much memory tasks may take: most of what is free, in bytes."""
    free, total = measure_memory()
    return max(free - int(_SPARE * total), free // 2)


def cut_log(path: Path) -> None:
    """Throw the beginning of a log away that would fill the disk.

    Tasks append to it, so what they write meanwhile follows.
    """
    try:
        if path.stat().st_size <= LOG_BYTES:
            return
        with path.open("rb") as file:
            file.seek(-KEPT_BYTES, 2)
            kept = file.read()
        with path.open("r+b") as file:
            file.truncate(0)
        with path.open("ab") as file:
            file.write(kept)
    except OSError:
        pass  # it is not there yet, or the disk is full, which its task will tell
