"""The single-device step with values from outside in place of its own."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from distbench.evidence import Tier
from distbench.trace import COMPUTED, UPDATED, Phase, Trace
from distbench.worker.one_device.fed import FedStep
from distbench.worker.one_device.reference import Reference
from distbench.worker.process.failures import SubjectError
from distbench.worker.state.python_numbers import read_numbers
from distbench.worker.state.values import make_alike
from distbench.worker.stepping.steps import Step
from distbench.worker.taps.collect import State, put_back
from distbench.worker.taps.feeds import Fed

Start = Callable[[int, State], State]
"""What a step starts from, given its number and what the reference's started from."""


def keep(_: int, before: State) -> State:
    """Start a step from where the reference's started."""
    return before


class Feeder:
    """Runs the steps of a reference with values that it is given.

    Args:
        reference: Ran all its steps before.

    Attributes:
        numbers: Of Python's that its optimizers had before any step was fed.
    """

    def __init__(self, reference: Reference) -> None:
        self.reference = reference
        self._fed = FedStep(reference.session)
        self.numbers = read_numbers(reference.session.optimizers)

    def forget_steps(self) -> None:
        """Trace the step anew for what is fed next."""
        self.reference.session.board.forget()
        self._fed = FedStep(self.reference.session)

    def takes(self, tier: Tier) -> bool:
        """Whether values can be put into the steps of a tier.

        Free steps of a cluster did not start from the reference's state, and without
        taps there is no place for values.
        """
        return tier != "free" and self.reference.session.tapped

    def feed(
        self,
        tier: Tier,
        observed: Trace,
        phase: Any,
        source: Any = None,
        times: int = 1,
        kept: tuple[str, ...] = UPDATED,
        change: Callable[[Any], Any] | None = None,
        move: Start = keep,
    ) -> list[Trace]:
        """Feed a phase of the one-device step; a trace for each time that it ran.

        The batch may be changed before, which is told by what no gradient carries, and
        the state be moved, to see how far what the step adds to it moves.

        Between two times state of a role that is not `kept` is put back; so are
        counters of steps, unless the cluster's went on by more than one as well.
        """
        reference, session = self.reference, self.reference.session
        board = session.board
        found = [session.make_values() for _ in range(times)]
        with board.feed_at(phase):
            # A step that is random would not lead to the same states once more.
            for step, batch, before in reference.list_steps(tier):
                if change is not None:
                    batch = change(batch)
                for replica in range(observed.replicas):
                    board.fed = {
                        (key.call, phase, key.variable): make_alike(
                            value, observed.get(replace(key, phase=phase))
                        )
                        for key, value in observed.select(
                            step=step, phase=source or phase, replica=replica
                        )
                    }
                    if not board.fed:
                        continue
                    fed_step = self._fed.find(phase)
                    start = move(step, before)
                    session.restore_state(start)
                    session.begin_step(step)
                    again = {}
                    if times > 1:
                        # What happens between two steps happens once.
                        begun = session.read_state()
                        again = self._find_again(observed, step, begun, kept)
                    for values in found:
                        if values is not found[0]:
                            session.write_state(again)
                        self._run_fed(fed_step, batch)
                        session.collect_taps(step, values, replica=replica)
                        after = put_back(session.read_state(), start, before)
                        session.collect_state(step, after, values, replica=replica)
        name = f"replay of {source or phase}"
        return [
            reference.make_trace(name, tier, values, times=number, kept=kept)
            for number, values in enumerate(found, 1)
        ]

    def resume_shards(self, tier: Tier, observed: Trace) -> Trace | None:
        """Losses and local gradients of shards that go on from the cluster's updates.

        Of a step that updates several times, with what was reduced on the cluster. None
        where the program takes no batch of another size.
        """
        reference, session = self.reference, self.reference.session
        board = session.board
        values = session.make_values()
        phase: Phase = "reduced_gradient"
        with suppress(SubjectError), board.feed_at(phase):
            for step, batch, _ in reference.list_steps(tier):
                for replica, shard in enumerate(reference.sizes.cut(step, batch)):
                    board.fed = _find_fed(observed, step, phase, replica)
                    if not board.fed:
                        continue
                    fed_step = self._fed.find(phase)
                    reference.restore_shard(tier, step, replica)
                    session.begin_step(step)
                    self._run_fed(fed_step, shard)
                    session.collect_taps(step, values, replica=replica, phases=COMPUTED)
            return reference.make_trace("resumed", tier, values)
        return None

    def take_turns(self, tier: Tier, observed: Trace) -> Trace | None:
        """Apply the update once for each replica in a step, with its own gradient."""
        session = self.reference.session
        board = session.board
        values = session.make_values()
        phase: Phase = "reduced_gradient"
        with suppress(SubjectError), board.feed_at(phase):
            for step, batch, before in self.reference.list_steps(tier):
                session.restore_state(before)
                session.begin_step(step)
                for replica in range(observed.replicas):
                    board.fed = _find_fed(observed, step, phase, replica)
                    if not board.fed:
                        break
                    self._run_fed(self._fed.find(phase), batch)
                session.board.read()
                session.collect_state(step, session.read_state(), values, replica=0)
            return self.reference.make_trace("turns", tier, values)
        return None

    def _find_again(
        self, observed: Trace, step: int, before: State, kept: tuple[str, ...]
    ) -> dict[str, npt.NDArray[np.generic]]:
        """The state that is put back before an update is repeated."""
        found = {}
        for variable in self.reference.session.variables:
            start = before.get((variable.path, 0))
            if start is None or variable.role in kept:
                continue
            if variable.role != "iterations" or _went_on_by_one(
                observed, step, variable.path, start
            ):
                found[variable.path] = start
        return found

    def _run_fed(self, step: Step, batch: Any) -> None:
        session = self.reference.session
        session.program.replicas = 1
        with session.guard("step"):
            # The feeds come into being while the step is traced.
            step.trace([batch])
            session.board.set_feeds()
            step.run([batch])


def _find_fed(observed: Trace, step: int, phase: Phase, replica: int) -> Fed:
    """What a replica had at a phase of a step, by the place where it is fed."""
    found = observed.select(step=step, phase=phase, replica=replica)
    return {(key.call, phase, key.variable): value for key, value in found}


def _went_on_by_one(
    observed: Trace, step: int, path: str, start: npt.NDArray[np.generic]
) -> bool:
    seen = observed.select(step=step, phase="iterations", variable=path)
    return all(np.array_equal(np.asarray(value), start + 1) for _, value in seen)


def repeat_first(batch: Any) -> Any:
    """A batch of the same shape in which all examples are the first one."""
    return tf.nest.map_structure(
        lambda a: np.repeat(np.asarray(a)[:1], len(a), axis=0), batch
    )
