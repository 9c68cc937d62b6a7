"""A task that is hurt on purpose: killed or stopped once the cluster has come so far.

Steps are those that tasks report. A coordinator reports each step that it hands to a
worker, with the phase `... on worker-1`, so that the worker of a step can be meant.
"""

from __future__ import annotations

import signal
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
    """

    number: signal.Signals
    step: int
    task: Task | None = None
    runs: int | None = None
    restarts: bool = False
    until_step: int | None = None

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


class Injurer:
    """Follows what tasks report, and says when a signal is due.

    Args:
        injury: What is to be done.
        tasks: The tasks of the cluster.

    Attributes:
        victim: Who was hurt; None before.
        told: What was done, in words; empty before.
    """

    def __init__(self, injury: Injury, tasks: tuple[Task, ...]) -> None:
        if injury.task is not None and injury.task not in tasks:
            raise BadInputError(
                "An injury must name a task of its cluster. Expected one of "
                f"{', '.join(map(str, tasks))}. Received: {injury.task}."
            )
        self._injury = injury
        self._tasks = {str(task): task for task in tasks}
        self._runner: Task | None = None
        self._continued = False
        self._restarted = False
        self._over = False
        self.victim: Task | None = None
        self.told = ""

    def follow(self, step: int | None, phase: str | None) -> Blow | None:
        """Take in what a task reports; returns the signal that is due, if one is."""
        injury = self._injury
        if step is None:
            return None
        if step == injury.runs and self.victim is None:
            self._runner = self._tasks.get((phase or "").rpartition(" on ")[2])
        if self.victim is None:
            victim = injury.task or self._runner
            if step < injury.step or victim is None:
                return None
            self.victim = victim
            self._add(f"{victim} was sent {injury.number.name} with step {step}")
            return Blow(task=victim, number=injury.number)
        if injury.until_step is None or self._continued or step < injury.until_step:
            return None
        self._continued = True
        self._add(f"it went on with step {step}")
        return Blow(task=self.victim, number=signal.SIGCONT)

    def takes_death(self, task: Task) -> bool:
        """Whether it is this that a task has died of."""
        is_meant = task == self.victim and self._injury.number == signal.SIGKILL
        return is_meant and not self._over

    def restarts(self, task: Task) -> bool:
        """Whether a task that has died is to be started again: once."""
        if self._restarted or not (self._injury.restarts and self.takes_death(task)):
            return False
        self._restarted = True
        self._add("it was started again")
        return True

    def holds(self, task: Task) -> bool:
        """Whether a task is stopped and will go on."""
        is_stopped = task == self.victim and self._injury.until_step is not None
        return is_stopped and not self._continued

    def end(self) -> None:
        """From now on tasks die of something else: the end of their group."""
        self._over = True

    def _add(self, what: str) -> None:
        self.told = f"{self.told}, {what}" if self.told else what
