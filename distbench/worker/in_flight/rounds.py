"""Rounds of steps in flight: on one device beforehand, on the cluster, and after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from distbench.scenario import Scenario
from distbench.trace import INITIAL, WHOLE, Phase, SparseRows, Trace, TraceKey, Value
from distbench.worker.in_flight.interleave import Interleaver
from distbench.worker.in_flight.orders import (
    EXTREMES,
    Event,
    draw_order,
    list_as_seen,
    list_extremes,
    list_in_turn,
    list_together,
    split_updates,
)
from distbench.worker.in_flight.packed import LOOKUP, write_lookups
from distbench.worker.one_device.reference import Reference
from distbench.worker.state.torn import find_led, find_torn
from distbench.worker.state.values import find_counts, have_same_bits, perturb
from distbench.worker.stepping.session import Session
from distbench.worker.stepping.steps import StepsInFlight, Timed
from distbench.worker.taps.collect import State
from distbench.worker.taps.given import select_state

_ORDERS = 32
"""Orders that are drawn: the range of so many draws of a normal distribution, once more
on either side, is left by another draw with a chance of about 1e-6."""
_HANDED: tuple[Phase, ...] = ("local_gradient",)
_MOST_LEFT_OUT = 16
"""Steps of a round that are left out in turn, each a run of the others, and that come
as late and as early as they may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """What one device may come to in a round; see `distbench.flight.Flight`."""

    orders: tuple[Trace, ...]
    lost: dict[int, Trace]
    again: dict[int, Trace]
    stale: tuple[Trace, ...]


class Rounds:
    """The rounds of a scenario on one device.

    Args:
        reference: The subject on one device; it has run nothing yet.
        lookups: What lookup tables held before the first step.

    Attributes:
        torn: Paths of the state that the step leaves open to other steps.
        led: Of what it changes by such state, read again.
        has_sparse: Whether the optimizer gets sparse gradients; known once planned.
    """

    def __init__(self, reference: Reference, lookups: State) -> None:
        scenario = reference.scenario
        self._reference = reference
        self._scenario = scenario
        self._interleaver = Interleaver(reference, scenario.seed)
        self._places = range(scenario.in_flight)
        self._lookups = lookups
        self._starts: list[State] = []
        self._commutes = True
        table = reference.session.table
        self.torn = find_torn(reference.graph, table)
        self.led = find_led(reference.graph, table, self.torn)
        self.has_sparse = False

    def list_lookups(self) -> list[State]:
        """What lookup tables hold before each round; known once planned."""
        return [_take_lookups(start) for start in self._starts]

    def plan(self) -> tuple[Trace, bool]:
        """Run every round in the order of the schedule.

        Returns:
            The states that rounds start from (see `distbench.flight.Flight`), and
            whether every order leads there in all bits: the schedule backwards, a
            shuffled one, and one in which all read before the first update.
        """
        values: dict[TraceKey, Value] = {}
        state: State = {**self._reference.initial, **self._lookups}
        self._keep(INITIAL, values, state)
        rng = np.random.default_rng((self._scenario.seed, 3))
        for number in range(self._scenario.steps):
            self._starts.append(state)
            others = (
                list_in_turn(self._places[::-1]),
                list_in_turn([int(place) for place in rng.permutation(self._places)]),
                list_together(self._places),
            )
            end = self._run(number, list_in_turn(self._places))
            if not number:
                self.has_sparse = self._find_sparse()
            if self._commutes:
                self._commutes = all(
                    _is_same(self._run(number, order), end) for order in others
                )
            state = end
            self._keep(number, values, end)
        return self._make_trace("schedule", values), self._commutes

    def _find_sparse(self) -> bool:
        values: dict[TraceKey, Value] = {}
        session = self._reference.session
        session.collect_taps(0, values, replica=WHOLE, phases=_HANDED)
        return any(isinstance(value, SparseRows) for value in values.values())

    def follow(self, observed: Trace) -> Followed:
        """Run every round in orders that the cluster's steps may have had."""
        left_out: Sequence[int] = self._places
        if len(left_out) > _MOST_LEFT_OUT:
            spread = np.linspace(0, len(left_out) - 1, _MOST_LEFT_OUT)
            left_out = [int(place) for place in spread]
        count = 1 if self._commutes else _ORDERS + EXTREMES * len(left_out)
        # Nothing rounds a count, and a step may ask it for a remainder.
        counts = find_counts(self._starts)
        orders: list[dict[TraceKey, Value]] = [{} for _ in range(count)]
        lost: dict[int, dict[TraceKey, Value]] = {place: {} for place in left_out}
        again: dict[int, dict[TraceKey, Value]] = {place: {} for place in left_out}
        for number, (begun, ended) in enumerate(self._list_times(observed)):
            rng = np.random.default_rng((self._scenario.seed, 4, number))
            turns = [int(place) for place in np.argsort(ended)]
            put_off = [*[()] * _ORDERS, *list_extremes(begun, ended, left_out)]
            for draw, values in enumerate(orders):
                events = (
                    list(draw_order(begun, ended, rng, put_off[draw])) if draw else None
                )
                start = self._starts[number]
                if draw % 2 and events:
                    events = split_updates(events, begun, ended, rng)
                    # Another graph rounds otherwise, and so does another order.
                    start = {
                        k: a if k in counts else perturb(a, rng, None)
                        for k, a in start.items()
                    }
                self._collect(number, values, events or list_in_turn(turns), start)
            for place in left_out:
                rest = [other for other in turns if other != place]
                self._collect(number, lost[place], list_in_turn(rest))
                self._collect(
                    number, again[place], list_in_turn(turns), times={place: 2}
                )
        return Followed(
            orders=tuple(
                self._make_trace(f"order {draw}", values)
                for draw, values in enumerate(orders)
            ),
            lost={p: self._make_trace(f"without {p}", v) for p, v in lost.items()},
            again={p: self._make_trace(f"twice {p}", v) for p, v in again.items()},
            stale=self._add_up(observed) if self.torn else (),
        )

    def _add_up(self, observed: Trace) -> tuple[Trace, ...]:
        """Every round where steps add what they made of what they found; see `Flight`.

        Rounds have as many as that in which most may be late; others repeat their
        first.
        """
        ends: list[list[State]] = []
        for number, (begun, ended) in enumerate(self._list_times(observed)):
            start, steps = self._starts[number], self._list_steps(number)
            ends.append(
                [
                    self._interleaver.add_up(start, steps, events)
                    for events in list_as_seen(begun, ended)
                ]
            )
        count = max(map(len, ends))
        traces: list[dict[TraceKey, Value]] = [{} for _ in range(count)]
        for number, found in enumerate(ends):
            padded = [*found, *found[:1] * (count - len(found))]
            for values, end in zip(traces, padded, strict=True):
                self._keep(number, values, end)
        return tuple(
            self._make_trace(f"stale {place}", values)
            for place, values in enumerate(traces)
        )

    def _list_times(
        self, observed: Trace
    ) -> Iterator[tuple[Sequence[int], Sequence[int]]]:
        begun, ended = (
            cast(list[int], observed.notes[name]) for name in ("begun", "ended")
        )
        each = self._scenario.in_flight
        for number in range(self._scenario.steps):
            part = slice(number * each, (number + 1) * each)
            yield begun[part], ended[part]

    def _collect(
        self,
        number: int,
        values: dict[TraceKey, Value],
        events: list[Event],
        start: State | None = None,
        times: dict[int, int] | None = None,
    ) -> None:
        self._keep(number, values, self._run(number, events, start, times))

    def _keep(self, number: int, values: dict[TraceKey, Value], end: State) -> None:
        end = {key: value for key, value in end.items() if key[0] != LOOKUP}
        self._reference.session.collect_state(number, end, values, replica=WHOLE)

    def _run(
        self,
        number: int,
        events: list[Event],
        start: State | None = None,
        times: dict[int, int] | None = None,
    ) -> State:
        start = self._starts[number] if start is None else start
        steps = self._list_steps(number)
        return self._interleaver.run(start, steps, events, times=times)

    def _list_steps(self, number: int) -> range:
        each = self._scenario.in_flight
        return range(number * each, (number + 1) * each)

    def _make_trace(self, name: str, values: dict[TraceKey, Value]) -> Trace:
        return self._reference.make_trace(name, values)


def fly(
    session: Session,
    scenario: Scenario,
    starts: Trace,
    lookups: Sequence[State],
    report: Callable[[int, int], None],
) -> Trace:
    """Run all rounds on the cluster; each starts from the state of one device.

    Args:
        session: The subject, with its first step traced.
        scenario: What to run.
        starts: See `distbench.flight.Flight`.
        lookups: What lookup tables hold before each round.
        report: Told of each step that a worker is handed, and of its number.
    """
    steps = StepsInFlight(session, session.program.replica_step, report)
    values: dict[TraceKey, Value] = {}
    session.collect_state(INITIAL, session.read_state(), values)
    times: list[Timed] = []
    for number in range(scenario.steps):
        first = number * scenario.in_flight
        start = select_state(starts, "bounded", number, is_shared=True)
        session.write_state(start)
        write_lookups(session.program.lookup_tables(), lookups[number])
        with session.guard("data"):
            batches = [
                session.program.data(first + place)
                for place in range(scenario.in_flight)
            ]
        with session.guard("step"):
            times += steps.run(batches)
        session.collect_state(number, session.read_state(), values)
    return Trace(
        name=scenario.cluster,
        replicas=1,
        shards=starts.shards,
        variables=session.variables,
        values=values,
        notes={
            name: [getattr(timed, name) for timed in times]
            for name in ("begun", "ended", "tries")
        },
    )


def _take_lookups(state: State) -> State:
    return {key: value for key, value in state.items() if key[0] == LOOKUP}


def _is_same(left: State, right: State) -> bool:
    return all(have_same_bits(left[key], value) for key, value in right.items())
