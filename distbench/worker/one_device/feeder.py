"""The single-device step with values from outside in place of its own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from distbench.evidence import Tier
from distbench.trace import COMPUTED, Phase, Recorded, Trace
from distbench.worker.one_device.fed import FedSteps
from distbench.worker.one_device.reference import Reference
from distbench.worker.process.failures import SubjectError
from distbench.worker.state.python_numbers import read_numbers, write_number
from distbench.worker.state.values import make_alike
from distbench.worker.taps.collect import State, put_back
from distbench.worker.taps.feeds import ByPlace
from distbench.worker.taps.given import select_gradients

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
        self._fed = FedSteps(reference.session)
        self.numbers = read_numbers(reference.session.optimizers)

    @contextmanager
    def trace_apart(self) -> Iterator[None]:
        """Inside, steps are traced anew, which leaves nothing to what is fed later."""
        optimizers, fed = self.reference.session.optimizers, self._fed
        before = read_numbers(optimizers)
        self._fed = FedSteps(self.reference.session)
        try:
            yield
        finally:
            self._fed = fed
            for name, value in before.items():
                write_number(optimizers, name, value)

    def takes(self, tier: Tier) -> bool:
        """Whether values can be put into the steps of a tier.

        Free steps of a cluster did not start from the reference's state, and without
        taps there is no place for values.
        """
        return tier != "free" and self.reference.session.tapped

    def feed(
        self,
        tier: Tier,
        given: Trace,
        phase: Phase,
        /,
        *,
        source: Phase | None = None,
        change: Callable[[Any], Any] | None = None,
        move: Start = keep,
        **notes: object,
    ) -> Trace:
        """Feed a phase of the one-device step with what is given of it, or of a source.

        The batch may be changed before, which is told by what no gradient carries, and
        the state be moved, to see how far what the step adds to it moves.
        """
        [values] = self._feed(tier, given, phase, source or phase, change, move)
        name = f"replay of {source or phase}"
        return self.reference.make_trace(name, values, **notes)

    def feed_often(
        self, tier: Tier, given: Trace, phase: Phase, times: int, kept: Collection[str]
    ) -> list[Trace]:
        """Feed a phase of a step that runs several times; a trace for each of them.

        Between two times state of a role that is not `kept` is put back; so are
        counters of steps, unless the cluster's went on by more than one as well.
        """
        found = self._feed(tier, given, phase, phase, times=times, kept=kept)
        return [
            self.reference.make_trace(f"replay of {phase}", values, times=number)
            for number, values in enumerate(found, 1)
        ]

    def _feed(
        self,
        tier: Tier,
        given: Trace,
        phase: Phase,
        source: Phase,
        change: Callable[[Any], Any] | None = None,
        move: Start = keep,
        times: int = 1,
        kept: Collection[str] = (),
    ) -> Sequence[Recorded]:
        session = self.reference.session
        found = [session.make_values() for _ in range(times)]
        # A step that is random would not lead to the same states once more.
        for step, batch, before in self.reference.list_steps(tier):
            if change is not None:
                batch = change(batch)
            for replica in range(given.replicas):
                fed: ByPlace = {
                    (key.call, phase, key.variable): make_alike(
                        value, given.get(replace(key, phase=phase))
                    )
                    for key, value in given.select(
                        step=step, phase=source, replica=replica
                    )
                }
                if not fed:
                    continue
                start = move(step, before)
                session.restore_state(start)
                session.begin_step(step)
                again = {}
                if times > 1:
                    # What happens between two steps happens once.
                    begun = session.read_state()
                    again = self._find_again(given, step, begun, kept)
                with self._run_fed(fed, batch) as run:
                    for values in found:
                        if values is not found[0]:
                            session.write_state(again)
                        run()
                        session.collect_taps(step, values, replica=replica)
                        after = put_back(session.read_state(), start, before)
                        session.collect_state(step, after, values, replica=replica)
        return found

    def resume_shards(self, tier: Tier, observed: Trace) -> Trace | None:
        """Losses and local gradients of shards that go on from the cluster's updates.

        With what was reduced on the cluster. None where a step updates once, or the
        program takes no batch of another size.
        """
        reference, session = self.reference, self.reference.session
        if not (reference.handed.is_often and self.takes(tier)):
            return None
        values = session.make_values()
        with suppress(SubjectError):
            for step, batch, _ in reference.list_steps(tier):
                for replica, shard in enumerate(reference.sizes.cut(step, batch)):
                    fed = select_gradients(observed, "reduced_gradient", step, replica)
                    if not fed:
                        continue
                    reference.starts.restore_shard(tier, step, replica)
                    with reference.led_steps.feed(fed, shard) as led:
                        reference.run_shard(step, shard, led)
                    session.collect_taps(step, values, replica=replica, phases=COMPUTED)
            return reference.make_trace("resumed", values)
        return None

    def take_turns(self, tier: Tier, observed: Trace) -> Trace | None:
        """Apply the update once for each replica in a step, with its own gradient."""
        session = self.reference.session
        values = session.make_values()
        with suppress(SubjectError):
            for step, batch, before in self.reference.list_steps(tier):
                session.restore_state(before)
                session.begin_step(step)
                for replica in range(observed.replicas):
                    fed = select_gradients(observed, "reduced_gradient", step, replica)
                    if not fed:
                        break
                    with self._run_fed(fed, batch) as run:
                        run()
                session.collect_state(step, session.read_state(), values, replica=0)
            return self.reference.make_trace("turns", values)
        return None

    def _find_again(
        self, observed: Trace, step: int, before: State, kept: Collection[str]
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

    @contextmanager
    def _run_fed(self, fed: ByPlace, batch: Any) -> Iterator[Callable[[], None]]:
        """Inside, what it yields runs a step with these values."""
        session = self.reference.session
        session.program.replicas = 1
        with self._fed.feed(fed, batch) as step:
            yield partial(session.run, step, [batch])


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
