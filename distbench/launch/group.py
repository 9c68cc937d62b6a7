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
    Member,
    ask_for_stacks,
    make_failure,
    make_timeout,
    make_unreachable,
)
from distbench.launch.failure import read_tail
from distbench.launch.forkclient import ForkServer
from distbench.launch.injury import Injurer, Injury
from distbench.launch.process import ExitStatus, kill_processes
from distbench.launch.watch import LOOK_S, Watch

Payload = Mapping[str, Any]
OnProgress = Callable[[Task, int | None, str | None], None]

GRACE_S = 0.3
"""How long a task's death may come in after its peers' errors and still be the cause.

A worker whose peer dies gets a gRPC error within milliseconds; the peer's exit status
takes the way through the fork server.
"""
_PEER_GRACE_S = 1.0
"""The same where all that is known is that a task lost a peer."""
_GIVE_UP_S = 1.0
"""How long tasks have to say in what they wait for each other."""
_EXIT_STATUS_S = 1.0
_TICK_S = 0.05
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
        started_by: `fork` or `spawn`.
    """

    def __init__(
        self,
        name: str,
        members: Iterable[Member],
        *,
        server: ForkServer | None = None,
        release: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        watch: Watch | None = None,
    ) -> None:
        self._name = name
        self._members = {member.task: member for member in members}
        self._server = server
        self._clock = clock
        self._watch = watch or Watch(clock=clock)
        self._broken: list[Member] = []
        self._selector = selectors.DefaultSelector()
        for member in self._members.values():
            self._selector.register(member.channel, selectors.EVENT_READ, member)
        if server is not None:
            self._selector.register(server, selectors.EVENT_READ, None)
        self._injurer: Injurer | None = None
        self.tasks = tuple(self._members)
        self.attempts = 1
        self.first: dict[Task, dict[str, Any]] = {}
        self.started_by = "spawn" if server is None else "fork"
        self._finalizer = weakref.finalize(
            self,
            _release_all,
            tuple(self._members.values()),
            self._selector,
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

    def injure(self, injury: Injury) -> None:
        """Have a task hurt during the jobs that follow, which does not end them."""
        self._injurer = Injurer(injury, self.tasks)

    @property
    def injury(self) -> str:
        """What was done to a task so far, in words; empty for nothing."""
        return "" if self._injurer is None else self._injurer.told

    @property
    def closed(self) -> bool:
        """Whether the tasks have been ended."""
        return not self._finalizer.alive

    def call(
        self,
        job: str,
        payload: Payload | Mapping[Task, Payload],
        *,
        timeout_s: float,
        tasks: Iterable[Task] | None = None,
        on_progress: OnProgress | None = None,
    ) -> dict[Task, dict[str, Any]]:
        """Have tasks run a job at the same time, and wait for all of them.

        Args:
            job: Name of the job, a key of the task's handlers.
            payload: One JSON object for all tasks, or one for each task.
            timeout_s: Deadline for all of them together.
            tasks: Who runs it; by default every task, or those that `payload` names.
            on_progress: Called with task, step and phase whenever a task reports.

        Returns:
            What each task's handler returned.

        Raises:
            TaskFailedError: A task of the group failed, whether it runs the job or
                not, or the deadline passed. The group has been ended.
            ClusterError: The group had ended before.
        """
        return self.submit(
            job, payload, timeout_s=timeout_s, tasks=tasks, on_progress=on_progress
        )()

    def submit(
        self,
        job: str,
        payload: Payload | Mapping[Task, Payload],
        *,
        timeout_s: float,
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
        payloads = _assign_payloads(payload, tasks or (), self.tasks)
        deadline = self._clock() + timeout_s
        with self._ended_on_error():
            for task, own in payloads.items():
                member = self._members[task]
                member.result = None
                member.channel.send(
                    {"job": job, "payload": own},
                    timeout_s=max(_TICK_S, deadline - self._clock()),
                )

        def wait() -> dict[Task, dict[str, Any]]:
            with self._ended_on_error():
                self._wait_results(
                    job, tuple(payloads), deadline, timeout_s, on_progress
                )
            return {task: self._members[task].result or {} for task in payloads}

        return wait

    @contextlib.contextmanager
    def _ended_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._end(polite=False)
            raise

    def close(self) -> None:
        """End all tasks: by request, then by SIGTERM, then by SIGKILL."""
        if not self.closed:
            self._end(polite=True)

    def __enter__(self) -> Group:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self.closed:
            self._end(polite=kind is None)

    def _wait_results(
        self,
        job: str,
        tasks: tuple[Task, ...],
        deadline: float,
        timeout_s: float,
        on_progress: OnProgress | None,
    ) -> None:
        everyone = self._members.values()
        while True:
            self._pump(deadline - self._clock(), on_progress)
            culprit = self._find_culprit() if self._broken else None
            waiting = tuple(t for t in tasks if self._members[t].result is None)
            if culprit is not None:
                stacks = ask_for_stacks(everyone)
                if culprit.collective is not None:
                    self._ask_to_give_up(waiting)
                raise make_failure(self._name, job, culprit, everyone, waiting, stacks)
            if not waiting:
                return
            if self._clock() >= deadline:
                stacks = ask_for_stacks(everyone)
                self._ask_to_give_up(waiting)
                raise make_timeout(
                    self._name, job, timeout_s, everyone, waiting, stacks
                )

    def _ask_to_give_up(self, tasks: Iterable[Task]) -> None:
        """Have those that wait for each other say in what."""
        asked = [self._members[task] for task in tasks]
        for member in asked:
            if member.failure is None and member.exit is None:
                member.channel.send({"give_up": True}, timeout_s=_TICK_S)
        until = self._clock() + _GIVE_UP_S
        while (left := until - self._clock()) > 0:
            if all(m.failure or m.result or m.exit for m in asked):
                return
            self._pump(left)

    def _pump(self, timeout_s: float, on_progress: OnProgress | None = None) -> None:
        """Take in what has happened, or what happens next within the timeout."""
        # Nobody tells of a task that is stopped, nor of the exit of a spawned one whose
        # channel a child of its own holds open; and a status comes after the EOF.
        is_ending = any(m.eof_at_s is not None for m in self._alive())
        timeout_s = min(timeout_s, _TICK_S if is_ending else LOOK_S)
        for key, _ in self._selector.select(max(0.0, timeout_s)):
            if key.data is not None:
                self._read(key.data, on_progress)
            elif self._server is not None:
                self._server.read_exits()
                if self._server.dead:
                    self._selector.unregister(key.fileobj)
        for member in self._alive():
            self._check_exit(member, on_progress)
        for member, trouble in self._watch.find_trouble(self._alive()):
            is_held = self._injurer is not None and self._injurer.holds(member.task)
            if member.trouble is None and member.failure is None and not is_held:
                member.trouble = trouble
                self._broken.append(member)

    def _alive(self) -> list[Member]:
        return [member for member in self._members.values() if member.exit is None]

    def _read(self, member: Member, on_progress: OnProgress | None) -> None:
        for message in member.channel.receive():
            event = message["event"]
            if event == "finished":
                member.result = message["result"]
            elif event == "failed":
                member.failure = message
                self._broken.append(member)
            else:
                member.step, member.phase = message["step"], message["phase"]
                self._injure(member)
                if on_progress is not None:
                    on_progress(member.task, member.step, member.phase)
        if member.channel.at_eof and member.eof_at_s is None:
            member.eof_at_s = self._clock()
            self._selector.unregister(member.channel)

    def _check_exit(self, member: Member, on_progress: OnProgress | None) -> None:
        member.exit = member.process.poll()
        if member.exit is None:
            overdue = (
                member.eof_at_s is not None
                and self._clock() > member.eof_at_s + _EXIT_STATUS_S
            )
            if not overdue:
                return
            member.exit = ExitStatus(because="it closed its channel and lives on")
        # What it said before it died counts first.
        self._read(member, on_progress)
        known = member.failure is not None or member.trouble is not None
        if not (known or self._takes_death(member)):
            self._broken.append(member)

    def _injure(self, member: Member) -> None:
        if self._injurer is None:
            return
        blow = self._injurer.follow(member.step, member.phase)
        if blow is not None:
            self._members[blow.task].process.send_signal(blow.number)

    def _takes_death(self, member: Member) -> bool:
        """Whether a death is meant, and nobody waits for what the task would return."""
        injurer = self._injurer
        if injurer is None or member.result is None:
            return False
        if injurer.restarts(member.task) and member.restart is not None:
            if member.eof_at_s is None:
                self._selector.unregister(member.channel)
            member.channel.close()
            member.channel, member.process = member.restart()
            member.exit = member.eof_at_s = None
            self._selector.register(member.channel, selectors.EVENT_READ, member)
        return injurer.takes_death(member.task)

    def _find_culprit(self) -> Member:
        """Who is to blame: one that died before those that complain.

        And those that complain of something of their own before those that say that a
        peer is gone.
        """
        begin = self._clock()
        while not (died := [m for m in self._broken if m.failure is None]):
            own = [m for m in self._broken if not m.lost_peer]
            until = begin + (GRACE_S if own else _PEER_GRACE_S)
            left = until - self._clock()
            if left <= 0 or len(self._broken) == len(self._members):
                return (own or [self._find_unreachable()])[0]
            self._pump(left)
        return min(died, key=lambda m: m.exit.order if m.exit else 0)

    def _find_unreachable(self) -> Member:
        """Where all complain of lost peers: the one that they name, if it lives."""
        names = [member.peer for member in self._broken]
        for member in self._members.values():
            is_alive = member.failure is None and member.exit is None
            if is_alive and str(member.task) in names:
                member.trouble = make_unreachable(self._broken)
                return member
        return self._broken[0]

    def _end(self, *, polite: bool) -> None:
        if self._injurer is not None:
            self._injurer.end()
        try:
            if polite:
                for member in self._alive():
                    member.channel.send({"exit": True}, timeout_s=_TICK_S)
                self._wait_ended(_POLITE_S)
            for number, wait_s in (
                (signal.SIGTERM, _TERMINATE_S),
                (signal.SIGKILL, _KILL_S),
            ):
                for member in self._alive():
                    member.process.signal_group(number)
                self._wait_ended(wait_s)
        finally:
            self._finalizer()

    def _wait_ended(self, timeout_s: float) -> None:
        deadline = self._clock() + timeout_s
        while self._alive() and (left := deadline - self._clock()) > 0:
            self._pump(left)


def _assign_payloads(
    payload: Payload | Mapping[Task, Payload],
    tasks: Iterable[Task],
    everyone: tuple[Task, ...],
) -> dict[Task, Payload]:
    own = {key: value for key, value in payload.items() if isinstance(key, Task)}
    if own:
        return {task: own[task] for task in (tuple(tasks) or own)}
    names: Any = payload  # without a task among its keys it is one task's payload
    return dict.fromkeys(tuple(tasks) or everyone, names)


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
