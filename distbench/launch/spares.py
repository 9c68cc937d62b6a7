"""Groups that are started before they are wanted, by who has time to."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from distbench.errors import BadInputError, ClusterError
from distbench.launch.closing import Closing
from distbench.launch.engine import Engine
from distbench.launch.group import Group
from distbench.launch.halt import Halt
from distbench.launch.local import LocalEngine
from distbench.launch.rundir import RunDirectory
from distbench.machine import find_current_folder

KEEP_S = 600.0
"""How long a group may wait. It takes memory, and TensorFlow's workers ask each other
every half minute whether they live."""

SPARES = "what distbench.Spares() makes"
"""What the spares of a check or a run are to be."""

StartAhead = Callable[[RunDirectory], Group]


def read_clock_s() -> float:
    """Seconds, also those in which the machine slept, where it can tell."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


def _add_surroundings(key: Hashable) -> Hashable:
    """A key of what tasks find around them that are started now, as well."""
    surroundings = (frozenset(os.environ.items()), find_current_folder(), *sys.path)
    return key, surroundings


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    key: Hashable
    tasks: int
    start: StartAhead


class Spares(Closing):
    """Tasks that were started before they are wanted: each cluster of them serves once.

    `fill` starts, in a time in which nobody waits, what was used since the last time;
    checks and runs that are given the spares then begin with tasks in which TensorFlow
    has started and has taken a step.

        with distbench.Spares() as spares:
            distbench.run(train, "mwms:2", spares=spares)
            spares.fill()
            distbench.run(train_otherwise, "mwms:2", spares=spares)

    Any thread may use them; one alone fills up, while nobody else uses them.

    Args:
        engine: Says for how many tasks there is room; None asks this machine.
        clock: Seconds.
    """

    def __init__(
        self,
        engine: Engine | None = None,
        *,
        clock: Callable[[], float] = read_clock_s,
    ) -> None:
        self._lock = threading.Lock()
        self._engine = engine or LocalEngine()
        self._clock = clock
        self._wanted: list[_Wanted] = []
        self._ready: dict[Hashable, list[Group]] = defaultdict(list)
        self._directory: RunDirectory | None = None
        self._filled_s = 0.0

    def take(
        self, key: Hashable, tasks: int, start: StartAhead, halt: Halt
    ) -> Group | None:
        """A group that has been waiting, or None; it is remembered what was wanted.

        Args:
            key: Of all that makes one group differ from another, but for environment,
                current folder and `sys.path`.
            tasks: How many it has.
            start: Starts another one like it, whose files are in a given folder.
            halt: Ends whoever waits for it from now on.
        """
        with self._lock:
            self._wanted.append(_Wanted(key=key, tasks=tasks, start=start))
            self.end_old()
            ready = self._ready[_add_surroundings(key)]
            while ready:
                group = ready.pop()
                if group.is_whole:
                    group.obey(halt)
                    return group
                group.close()
            return None

    def fill(self) -> None:
        """Start what will be wanted, as far as there is room for it."""
        wanted = [*self._wanted]
        self.close()
        self._filled_s = self._clock()
        room = self._engine.find_room().tasks
        # Whoever wants what does not start is told why when it is started again.
        # The current folder may be away for a moment.
        with suppress(BadInputError, ClusterError, OSError):
            self._directory = RunDirectory()
            for one in self._list_fitting(wanted, room):
                # Those of now: they may have changed since it was wanted.
                key = _add_surroundings(one.key)
                self._ready[key].append(one.start(self._directory))

    @staticmethod
    def _list_fitting(wanted: list[_Wanted], room: int) -> Iterator[_Wanted]:
        for one in wanted:
            room -= one.tasks
            if room >= 0:
                yield one

    def end_old(self) -> None:
        """End those that have waited for too long."""
        if self._clock() - self._filled_s > KEEP_S:
            self._end_waiting()

    def close(self) -> None:
        """End all that wait, and forget what was wanted; nobody has one any more."""
        self._wanted.clear()
        self._end_waiting()
        if self._directory is not None:
            self._directory.close()
            self._directory = None

    def list_waiting(self) -> Iterator[Group]:
        """Those that nobody has taken yet."""
        for groups in self._ready.values():
            yield from groups

    def _end_waiting(self) -> None:
        for group in self.list_waiting():
            group.close()
        self._ready.clear()
