"""A task that is hurt on purpose: killed or stopped once the cluster has come so far.

Steps are those that tasks report. A task that reports steps is hit at its own; for all
others a coordinator speaks. It reports each step that it hands to a worker with the
phase `... on worker-1`, so that the worker of a step can be meant.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from distbench.cluster import Task
from distbench.errors import BadInputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Injury:
    """What is done to whom, and when.

    Attributes:
        number: SIGKILL or SIGSTOP.
        step: It is done as soon as this step, or a later one, is reported.
        task: To whom; None means whoever has `runs`.
        runs: The step whose worker it is done to, if `task` is None.
        restarts: Whether a task that was killed is started again, at its address.
        until_step: The step with which a task that was stopped goes on; None: never.
        for_s: After how many seconds it goes on; it is stopped anew each time that the
            step comes again. None: not by itself.
        goes_on: Whether the others go on without a task that dies of it or stands still
            for ever: nobody waits for what such a task would return.
        name: What the one who asked for it calls it.
    """

    number: signal.Signals
    step: int
    task: Task | None = None
    runs: int | None = None
    restarts: bool = False
    until_step: int | None = None
    for_s: float | None = None
    goes_on: bool = False
    name: str = "injury"

    def __post_init__(self) -> None:
        if self.number not in (signal.SIGKILL, signal.SIGSTOP):
            raise BadInputError(
                "An injury must be SIGKILL or SIGSTOP. Received: "
                f"{signal.Signals(self.number).name}."
            )
        if (self.task is None) == (self.runs is None):
            raise BadInputError(
                "An injury must name a task, or the step that the task runs. "
                f"Received: task={self.task}, runs={self.runs}."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Blow:
    """A signal that is due now."""

    task: Task
    number: signal.Signals


class _Wound:
    """What has become of one injury."""

    def __init__(self, injury: Injury) -> None:
        self.injury = injury
        self.victim: Task | None = None
        self.runner: Task | None = None
        self.goes_on_s = math.inf
        self.is_stopped = False
        self.restarted = False


class Injurer:
    """Follows what tasks report, and says when a signal is due.

    Args:
        injuries: What is to be done.
        tasks: The tasks of the cluster.
        clock: Monotonic time in seconds.
    """

    def __init__(
        self,
        injuries: Iterable[Injury],
        tasks: tuple[Task, ...],
        clock: Callable[[], float],
    ) -> None:
        self._wounds = [_Wound(injury) for injury in injuries]
        for wound in self._wounds:
            task = wound.injury.task
            if task is not None and task not in tasks:
                raise BadInputError(
                    "An injury must name a task of its cluster. Expected one of "
                    f"{', '.join(map(str, tasks))}. Received: {task}."
                )
        self._tasks = {str(task): task for task in tasks}
        self._clock = clock
        self._told: dict[str, None] = {}
        self._over = False

    @property
    def told(self) -> str:
        """What was done, in words; empty before."""
        return ", ".join(self._told)

    def follow(self, reporter: Task, step: int | None, phase: str | None) -> list[Blow]:
        """Take in what a task reports; returns the signals that are due."""
        if step is None:
            return []
        blows = (self._follow(w, reporter, step, phase) for w in self._wounds)
        return [blow for blow in blows if blow is not None]

    def _follow(
        self, wound: _Wound, reporter: Task, step: int, phase: str | None
    ) -> Blow | None:
        injury = wound.injury
        if step == injury.runs and wound.victim is None:
            wound.runner = self._tasks.get((phase or "").rpartition(" on ")[2])
        victim = injury.task or wound.runner
        if victim is None or (reporter.role != "chief" and reporter != victim):
            return None
        again = injury.for_s is not None and step == injury.step
        if step >= injury.step and (wound.victim is None or again):
            wound.victim = victim
            wound.is_stopped = injury.number == signal.SIGSTOP
            words = f"{victim} was sent {injury.number.name} with step {step}"
            if injury.for_s is not None:
                wound.goes_on_s = self._clock() + injury.for_s
                words += f" and went on after {injury.for_s:g} s"
            self._tell(words)
            return Blow(task=victim, number=injury.number)
        if injury.until_step is None or not wound.is_stopped:
            return None
        if step < injury.until_step:
            return None
        self._tell(f"it went on with step {step}")
        return self._continue(wound)

    @property
    def next_s(self) -> float:
        """When the next signal is due that no report brings about."""
        return min((wound.goes_on_s for wound in self._wounds), default=math.inf)

    def list_due(self) -> list[Blow]:
        """The signals that are due by now, whatever is reported."""
        due = [wound for wound in self._wounds if wound.goes_on_s <= self._clock()]
        return [blow for wound in due if (blow := self._continue(wound)) is not None]

    def _continue(self, wound: _Wound) -> Blow | None:
        wound.is_stopped, wound.goes_on_s = False, math.inf
        if wound.victim is None:
            return None
        return Blow(task=wound.victim, number=signal.SIGCONT)

    def takes_death(self, task: Task) -> bool:
        """Whether it is this that a task has died of."""
        return self._find(task, signal.SIGKILL) is not None

    def restarts(self, task: Task) -> bool:
        """Whether a task that has died is to be started again: once."""
        wound = self._find(task, signal.SIGKILL)
        if wound is None or not wound.injury.restarts:
            return False
        wound.restarted = True
        self._tell("it was started again")
        return True

    def holds(self, task: Task) -> bool:
        """Whether a task is stopped and will go on."""
        wound = self._find(task, signal.SIGSTOP)
        if wound is None:
            return False
        return wound.injury.until_step is not None or wound.goes_on_s < math.inf

    def has_taken(self, task: Task) -> bool:
        """Whether a task will not come back, and the others go on without it."""
        wounds = (w for w in self._wounds if w.victim == task and w.injury.goes_on)
        return not self._over and any(
            not w.injury.restarts
            if w.injury.number == signal.SIGKILL
            else w.is_stopped and not self.holds(task)
            for w in wounds
        )

    @property
    def pending(self) -> tuple[str, ...]:
        """The names of injuries that have not been done to anybody."""
        return tuple(w.injury.name for w in self._wounds if w.victim is None)

    def name_cause(self, task: Task, ended_by: int | None = None) -> str:
        """What a task has died of or stands still by; empty if it was nothing here.

        Args:
            task: The task.
            ended_by: The signal that ended its process; None for none.
        """
        wound = self._find(task, signal.SIGSTOP)
        if ended_by == signal.SIGKILL:
            wound = self._find(task, signal.SIGKILL) or wound
        return "" if wound is None else wound.injury.name

    def end(self) -> None:
        """From now on tasks die of something else: the end of their group."""
        self._over = True

    def _find(self, task: Task, number: signal.Signals) -> _Wound | None:
        """What a signal has done to a task that has not come back from it."""
        found = (
            wound
            for wound in self._wounds
            if wound.victim == task
            and wound.injury.number == number
            and not wound.restarted
            and (wound.is_stopped or number != signal.SIGSTOP)
        )
        return None if self._over else next(found, None)

    def _tell(self, what: str) -> None:
        self._told[what] = None
