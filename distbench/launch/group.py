"""The supervisor: starts the tasks of a cluster, gives them jobs, blames and ends them.

One loop watches every channel and the fork server. The first failure ends a call: the
peers of a broken task wait for it in collectives that have no deadline of their own.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any

from distbench.cluster import Task
from distbench.errors import ClusterError
from distbench.launch.blame import (
    ask_for_stacks,
    find_culprit,
    make_failure,
    make_timeout,
)
from distbench.launch.deadline import Deadline, Turn
from distbench.launch.events import TICK_S, Events, OnProgress
from distbench.launch.failure import TaskFailedError, read_tail
from distbench.launch.forkclient import ForkServer
from distbench.launch.halt import Halt
from distbench.launch.injury import Injury
from distbench.launch.member import Member
from distbench.launch.process import kill_processes
from distbench.launch.watch import Watcher

_GIVE_UP_S = 1.0
"""How long tasks have to say in what they wait for each other."""
_POLITE_S = 2.0
_TERMINATE_S = 0.2
"""Short: TensorFlow takes SIGTERM for the notice of a preemption and lives on."""
_KILL_S = 10.0


class Group:
    """The running tasks of one cluster; made by `distbench.launch.start.start_group`.

    Attributes:
        tasks: The tasks, in the spec's order.
        attempts: How many clusters were started until one got its ports.
        first: Results of the job that `start_group` was given.
    """

    def __init__(
        self,
        name: str,
        members: Iterable[Member],
        *,
        server: ForkServer | None = None,
        release: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        watch: Watcher | None = None,
        halt: Halt | None = None,
    ) -> None:
        self._name = name
        self._members = {member.task: member for member in members}
        self._clock = clock
        self._halt = halt or Halt()
        self._events = Events(
            self._members.values(), server=server, watch=watch, clock=clock
        )
        self.tasks = tuple(self._members)
        self.attempts = 1
        self.first: dict[Task, dict[str, Any]] = {}
        self._finalizer = weakref.finalize(
            self,
            _release_all,
            tuple(self._members.values()),
            self._events.selector,
            release,
            os.getpid(),
        )

    @property
    def pids(self) -> dict[Task, int]:
        """The process id of each task."""
        return {task: member.process.pid for task, member in self._members.items()}

    def read_logs(self) -> dict[Task, str]:
        """The last lines of each task's output, also after the tasks were ended."""
        return {task: read_tail(member.log) for task, member in self._members.items()}

    def injure(self, *injuries: Injury) -> None:
        """Have tasks hurt during the jobs that follow.

        A job goes on as long as nobody waits for what such a task would return.
        """
        self._events.injure(injuries)

    @property
    def injury(self) -> str:
        """What was done to tasks so far, in words; empty for nothing."""
        return self._events.injurer.told

    @property
    def pending(self) -> tuple[str, ...]:
        """The names of injuries that have not happened."""
        return self._events.injurer.pending

    @property
    def lost(self) -> tuple[Task, ...]:
        """The tasks that the others have gone on without."""
        return tuple(filter(self._events.injurer.has_taken, self.tasks))

    @property
    def is_whole(self) -> bool:
        """Whether every task lives, and none is in trouble."""
        if self.closed:
            return False
        self._events.pump(0.0)
        return not self._events.broken

    def obey(self, halt: Halt) -> None:
        """From now on, end who waits for this group when others are ended."""
        self._halt = halt

    @property
    def closed(self) -> bool:
        """Whether the tasks have been ended."""
        return not self._finalizer.alive

    def call(
        self,
        job: str,
        payload: Mapping[str, Any],
        *,
        deadline: float | Deadline,
        tasks: Iterable[Task] | None = None,
        on_progress: OnProgress | None = None,
    ) -> dict[Task, dict[str, Any]]:
        """Have tasks run a job at the same time, and wait for all of them.

        Args:
            job: Name of the job, a key of the task's handlers.
            payload: A JSON object for all of them.
            deadline: For all of them together: seconds, or one that the job shares
                with others.
            tasks: Who runs it; by default every task.
            on_progress: Called with task, step and phase whenever a task reports.

        Returns:
            What each task's handler returned.

        Raises:
            TaskFailedError: A task of the group failed, whether it runs the job or
                not, or the deadline passed. The group has been ended.
            ClusterError: The group had ended before.
            HaltedError: The job is not wanted any more.
        """
        return self.submit(
            job,
            payload,
            deadline=deadline,
            tasks=tasks,
            on_progress=on_progress,
        )()

    def submit(
        self,
        job: str,
        payload: Mapping[str, Any],
        *,
        deadline: float | Deadline,
        tasks: Iterable[Task] | None = None,
        on_progress: OnProgress | None = None,
    ) -> Callable[[], dict[Task, dict[str, Any]]]:
        """Have tasks run a job, and go on; see `call` for the arguments and errors.

        Returns:
            A function that waits for all of them and returns their results. Call it
            before the group's next job.
        """
        if self.closed:
            raise ClusterError(
                f"Job {job!r} cannot run: the tasks of '{self._name}' have been ended. "
                "Start a new group."
            )
        asked = self.tasks if tasks is None else tuple(tasks)
        if not isinstance(deadline, Deadline):
            deadline = Deadline(deadline, clock=self._clock)
        turn = Turn(deadline)
        with self._ended_on_error():
            for task in asked:
                member = self._members[task]
                member.result = None
                member.channel.send(
                    {"job": job, "payload": payload},
                    timeout_s=max(TICK_S, turn.rest_s),
                )

        def wait() -> dict[Task, dict[str, Any]]:
            with self._ended_on_error():
                self._wait_results(job, asked, turn, on_progress)
            return {task: self._members[task].result or {} for task in asked}

        return wait

    @contextlib.contextmanager
    def _ended_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            if isinstance(error, TaskFailedError):
                error.injury = self.injury
            self._end(polite=False)
            raise

    def dismiss(self) -> None:
        """Ask all tasks to end, for who has something to do until they have."""
        for member in self._events.list_alive():
            member.channel.send({"exit": True}, timeout_s=TICK_S)

    def close(self, *, polite: bool = True) -> None:
        """End all tasks: by request, then by SIGTERM, then by SIGKILL.

        Args:
            polite: Whether to ask them first, which those hear that have no job.
        """
        if not self.closed:
            self._end(polite=polite)

    def __enter__(self) -> Group:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(polite=kind is None)

    def _wait_results(
        self,
        job: str,
        tasks: tuple[Task, ...],
        turn: Turn,
        on_progress: OnProgress | None,
    ) -> None:
        everyone = self._members.values()
        while True:
            self._halt.check()
            # Settled before the look: where the bench itself stood still, after Ctrl-Z
            # say, what has come meanwhile came in time.
            is_late = turn.rest_s <= 0
            self._events.pump(turn.rest_s, on_progress)
            turn.deadline.excuse(*self._events.computing)
            if self._events.broken:
                raise self._blame(job, tasks)
            waiting = self._list_waiting(tasks)
            if not waiting:
                return
            if is_late:
                stacks = ask_for_stacks(everyone)()
                self._events.pump(0.0)
                # What a task raised meanwhile says more than that it is late. One that
                # stood still on purpose has been woken for its stacks.
                if any(m.raised_itself for m in everyone) and not self.injury:
                    raise self._blame(job, tasks)
                self._ask_to_give_up(waiting)
                raise make_timeout(
                    self._name, job, str(turn), everyone, waiting, stacks
                )

    def _blame(self, job: str, tasks: Iterable[Task]) -> TaskFailedError:
        """The error for the task that failed first, of those that are broken."""
        everyone = self._members.values()
        asked = None
        if all(member.lost_peer for member in self._events.broken):
            # The cause may take its time, and a task that cannot answer as well.
            asked = ask_for_stacks(everyone)
        culprit = find_culprit(everyone, self._events, self._clock)
        waiting = self._list_waiting(tasks)
        stacks = (asked or ask_for_stacks(everyone))()
        if culprit.collective is not None:
            self._ask_to_give_up(waiting)
        ended_by = culprit.exit.signal if culprit.exit is not None else None
        cause = self._events.injurer.name_cause(culprit.task, ended_by)
        return make_failure(self._name, job, culprit, everyone, waiting, stacks, cause)

    def _list_waiting(self, tasks: Iterable[Task]) -> tuple[Task, ...]:
        """Who has not answered yet."""
        return tuple(
            task
            for task in tasks
            if self._members[task].result is None
            and not self._events.injurer.has_taken(task)
        )

    def _ask_to_give_up(self, tasks: Iterable[Task]) -> None:
        """Have those that wait for each other say in what."""
        asked = [self._members[task] for task in tasks]
        for member in asked:
            if member.failure is None and member.exit is None:
                member.channel.send({"give_up": True}, timeout_s=TICK_S)
        until = self._clock() + _GIVE_UP_S
        while (left := until - self._clock()) > 0:
            if all(m.failure or m.result or m.exit for m in asked):
                return
            self._events.pump(left)

    def _end(self, *, polite: bool) -> None:
        self._events.injurer.end()
        try:
            if polite:
                self.dismiss()
                self._wait_ended(_POLITE_S)
            for member in self._events.list_alive():
                member.process.signal_group(signal.SIGTERM)
            self._wait_ended(_TERMINATE_S)
            for member in self._events.list_alive():
                member.process.send_signal(signal.SIGKILL)
            self._wait_ended(_KILL_S)
        finally:
            self._finalizer()

    def _wait_ended(self, timeout_s: float) -> None:
        deadline = self._clock() + timeout_s
        while self._events.list_alive() and (left := deadline - self._clock()) > 0:
            self._events.pump(left)


def _release_all(
    members: tuple[Member, ...],
    selector: selectors.BaseSelector,
    release: Callable[[], None],
    owner: int,
) -> None:
    """Leave nothing behind; also runs when a group is forgotten or the bench exits."""
    selector.close()
    if os.getpid() == owner:  # a fork of the bench must not end the bench's tasks
        kill_processes(member.process for member in members)
    for member in members:
        member.channel.close()
    release()
