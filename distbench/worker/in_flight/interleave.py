"""One device in the place of many workers: reads and updates in any order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from typing import Any

import numpy as np

from distbench.trace import WHOLE, Phase, TraceKey, Value
from distbench.worker.in_flight.orders import Event
from distbench.worker.in_flight.packed import PackedState
from distbench.worker.one_device.fed import FedSteps
from distbench.worker.one_device.reference import Reference
from distbench.worker.state.lookup import add_to_table
from distbench.worker.stepping.steps import Step
from distbench.worker.taps.collect import State

_FED: Phase = "reduced_gradient"


class Interleaver:
    """Runs the steps of a round on one device as if several were under way at once.

    A step that reads before another one's update computes its gradient from the older
    state, and its rule then changes the newer one. It may read all variables at once,
    or each at a time of its own, between two updates of others. Only the gradient is
    carried over: a rule is run on the state that it finds. A program that hands its
    gradient to no optimizer has what its step changes added to the newer state, and so,
    at times, have the variables that no optimizer trains, such as moving means: they
    may follow from what the step had read.

    Args:
        reference: The subject on one device.
        seed: Decides what else is open: when each variable is read, and whether a rule
            asks for the number of steps when its step has read, or when it updates.
    """

    def __init__(self, reference: Reference, seed: int) -> None:
        self._reference = reference
        self._session = reference.session
        self._rng = np.random.default_rng((seed, 5))
        self._plain = reference.session.make_step()
        self._fed = FedSteps(reference.session)
        self._held: State | None = None
        session = reference.session
        self._state = PackedState(session.table, session.program.lookup_tables())
        infos = self._session.variables
        self._models = {v.path for v in infos if v.role == "variable"}
        # Counters, and what else belongs to no variable, such as a power of beta.
        self._shared = {
            v.path
            for v in infos
            if v.role == "iterations" or (v.role == "slot" and not v.of)
        }

    def run(
        self,
        start: State,
        steps: Sequence[int],
        events: Iterable[Event],
        *,
        times: dict[int, int] | None = None,
    ) -> State:
        """The state after a round.

        Args:
            start: The state before it.
            steps: The numbers of its steps, by place.
            events: In which order they read and update; a step that is left out there
                is lost.
            times: How often a step of a place takes place, if not once.
        """
        order = list(events)
        states = [start]
        seen: dict[int, int] = {}
        read: dict[int, State] = {}
        waiting: dict[int, set[str]] = {}
        for kind, place in order:
            now = states[-1]
            if kind == "read":
                seen[place] = len(states) - 1
                continue
            if kind == "rest":
                state = self._run_late(steps[place], read[place], now)
                states.append(_take(waiting[place], state, now))
                continue
            between = states[seen[place] :]
            read[place] = self._choose_read(between)
            if len(between) == 1:
                state = self._run_step(steps[place], now)
            else:
                state = self._run_late(steps[place], read[place], now)
            for _ in range(1, (times or {}).get(place, 1)):
                state = self._run_step(steps[place], state)
            if ("rest", place) in order:
                waiting[place] = self._choose_rest()
                state = _take(waiting[place], now, state)
            states.append(state)
        return states[-1]

    def add_up(
        self, start: State, steps: Sequence[int], events: Iterable[Event]
    ) -> State:
        """The state after a round in which each step adds what it made of its reading.

        Nothing is asked for again after that, as where an op adds to a slot what
        follows from an older value of it.

        Args:
            start: The state before it.
            steps: The numbers of its steps, by place.
            events: In which order they read and update.
        """
        now = start
        read: dict[int, State] = {}
        for kind, place in events:
            if kind == "read":
                read[place] = now
                continue
            before = read[place]
            self._take_step(self._plain, steps[place], before)
            after = self._state.read()
            now = {key: _add(now[key], after[key], before[key]) for key in now}
        return now

    def _choose_rest(self) -> set[str]:
        """Half of the variables, with their slots: those that are updated later."""
        infos = self._session.variables
        groups = {v.of or v.path: bool(self._rng.integers(2)) for v in infos}
        return {
            v.path
            for v in infos
            if groups[v.of or v.path] and v.path not in self._shared
        }

    def _choose_read(self, between: Sequence[State]) -> State:
        """What a step has read that updates others' last state: the first, or mixed."""
        if len(between) == 1 or self._rng.integers(2):
            return between[0]
        return {
            key: between[int(self._rng.integers(len(between)))][key]
            for key in between[0]
        }

    def _run_step(self, step: int, state: State) -> State:
        self._take_step(self._plain, step, state)
        # The next step mostly goes on from here, and then nothing is to be set.
        self._held = self._state.read()
        return self._held

    def _run_late(self, step: int, before: State, now: State) -> State:
        """A step with the gradient of an earlier state."""
        self._session.board.read()
        self._take_step(self._plain, step, before)
        after = self._state.read()
        values: dict[TraceKey, Value] = {}
        self._session.collect_taps(step, values, replica=WHOLE, phases=(_FED,))
        added = {key: _add(now[key], after[key], before[key]) for key in now}
        if not values:
            return added
        fed = {(k.call, _FED, k.variable): value for k, value in values.items()}
        with self._fed.feed(fed, self._reference.draw(step)) as by:
            state = self._run_rule(by, step, before, now)
        if self._rng.integers(2):
            return state
        # What follows from the step's own reading, as a moving mean does.
        led = self._models - {key.variable for key in values}
        return _take(led, added, state)

    def _run_rule(self, by: Step, step: int, before: State, now: State) -> State:
        """The rule, on the state that it finds, with the gradient that is fed."""
        self._take_step(by, step, now)
        after = self._state.read()
        if not self._shared or self._rng.integers(2):
            return after
        # The rule may have asked for what all steps share when its step had read. What
        # becomes of that itself follows from the newer state all the same.
        self._take_step(by, step, _take(self._shared, before, now))
        return _take(self._shared, after, self._state.read())

    def _take_step(self, by: Step, number: int, state: State) -> None:
        self._session.program.replicas = 1
        if state is not self._held:
            self._state.write(state)
        self._held = None
        self._session.run(by, [self._reference.draw(number)])


def _take(paths: Set[str], some: State, others: State) -> State:
    """A state that has these variables of the one, and the rest of the other."""
    return {key: (some if key[0] in paths else others)[key] for key in others}


def _add(now: Any, after: Any, before: Any) -> Any:
    """What a step made of another state, in this one."""
    if np.array_equal(after, before):
        return now
    if now.dtype.names:
        return add_to_table(now, after, before)
    if now.dtype.kind == "b":
        return after
    wide = np.float64 if now.dtype.kind not in "iu" else now.dtype
    return (now.astype(wide) + (after.astype(wide) - before.astype(wide))).astype(
        now.dtype
    )
