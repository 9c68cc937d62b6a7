"""What happens to the tasks of a group: messages, exits, trouble, and injuries."""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable, Iterable

from distbench.cluster import Task
from distbench.launch.forkclient import ForkServer
from distbench.launch.injury import Blow, Injurer, Injury
from distbench.launch.member import Member
from distbench.launch.process import ExitStatus
from distbench.launch.watch import LOOK_S, Stretch, Watch, Watcher

OnProgress = Callable[[Task, int | None, str | None], None]

TICK_S = 0.05
_EXIT_STATUS_S = 1.0


class Events:
    """Takes in what happens to tasks, and hurts those that are to be hurt.

    Args:
        members: The tasks.
        server: The fork server that tells of their exits, if one made them.
        watch: Looks for trouble that no event tells of.
        clock: Monotonic time in seconds.

    Attributes:
        broken: Who failed, died or is in trouble, in the order in which it was seen.
        injurer: Who hurts tasks.
        selector: To be closed with the group.
    """

    def __init__(
        self,
        members: Iterable[Member],
        *,
        server: ForkServer | None = None,
        watch: Watcher | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._members = {member.task: member for member in members}
        self._server = server
        self._clock = clock
        self._watch = watch or Watch(clock=clock)
        self.broken: list[Member] = []
        self.selector = selectors.DefaultSelector()
        for member in self._members.values():
            self.selector.register(member.channel, selectors.EVENT_READ, member)
        if server is not None:
            self.selector.register(server, selectors.EVENT_READ, None)
        self.injure(())
        # What they take from now on is theirs: a job may be quick to take it.
        self._watch.find_trouble(self.list_alive())

    def injure(self, injuries: Iterable[Injury]) -> None:
        """Have tasks hurt from now on, in the place of what was asked for before."""
        self.injurer = Injurer(injuries, tuple(self._members), self._clock)

    @property
    def computing(self) -> Stretch:
        """When a task computed last, as far as looks tell."""
        return self._watch.computing

    def list_alive(self) -> list[Member]:
        """The tasks whose processes have not ended."""
        return [member for member in self._members.values() if member.exit is None]

    def pump(self, timeout_s: float, on_progress: OnProgress | None = None) -> None:
        """Take in what has happened, or what happens next within the timeout."""
        # Nobody tells of a task that is stopped, nor of the exit of a spawned one whose
        # channel a child of its own holds open; and a status comes after the EOF.
        is_ending = any(m.eof_at_s is not None for m in self.list_alive())
        timeout_s = min(timeout_s, TICK_S if is_ending else LOOK_S)
        timeout_s = min(timeout_s, self.injurer.next_s - self._clock())
        for key, _ in self.selector.select(max(0.0, timeout_s)):
            if key.data is not None:
                self._read(key.data, on_progress)
            elif self._server is not None:
                self._server.read_exits()
                if self._server.dead:
                    self.selector.unregister(key.fileobj)
        self._strike(self.injurer.list_due())
        for member in self.list_alive():
            self._check_exit(member, on_progress)
        for member, trouble in self._watch.find_trouble(self.list_alive()):
            known = member.trouble is not None or member.failure is not None
            meant = self.injurer.holds(member.task) or self.injurer.has_taken(
                member.task
            )
            if not known and not meant:
                member.trouble = trouble
                self.broken.append(member)

    def _read(self, member: Member, on_progress: OnProgress | None) -> None:
        for message in member.channel.receive():
            event = message["event"]
            if event == "finished" and member.is_restarting:
                member.is_restarting = False
            elif event == "finished":
                member.result = message["result"]
            elif event == "failed":
                member.failure = message
                self.broken.append(member)
            else:
                member.step, member.phase = message["step"], message["phase"]
                self._strike(
                    self.injurer.follow(member.task, member.step, member.phase)
                )
                if message["waits"]:
                    member.channel.send({"go_on": True}, timeout_s=TICK_S)
                if on_progress is not None:
                    on_progress(member.task, member.step, member.phase)
        if member.channel.at_eof and member.eof_at_s is None:
            member.eof_at_s = self._clock()
            self.selector.unregister(member.channel)

    def _strike(self, blows: Iterable[Blow]) -> None:
        for blow in blows:
            self._members[blow.task].process.send_signal(blow.number)

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
            self.broken.append(member)

    def _takes_death(self, member: Member) -> bool:
        """Whether a death is meant, and nobody waits for what the task would return."""
        if member.result is None and not self.injurer.has_taken(member.task):
            return False
        if member.restart is not None and self.injurer.restarts(member.task):
            if member.eof_at_s is None:
                self.selector.unregister(member.channel)
            member.channel.close()
            member.channel, member.process = member.restart()
            member.exit = member.eof_at_s = None
            member.is_restarting = member.has_first_job
            self.selector.register(member.channel, selectors.EVENT_READ, member)
            return True
        return self.injurer.takes_death(member.task)
