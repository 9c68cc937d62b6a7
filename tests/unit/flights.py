"""Rounds of steps in flight, simulated in NumPy: a rule, an order, and mistakes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from distbench.flight import Flight
from distbench.trace import INITIAL, WHOLE, Trace, TraceKey, VariableInfo
from distbench.worker.in_flight.orders import draw_order, list_in_turn

TALLY, SLOT, COUNTER = "tally", "tally/momentum", "iterations"
VELOCITY, BIAS = "velocity", "bias"
"""Of a program that keeps its own momentum."""
ROLES = {
    TALLY: "variable",
    VELOCITY: "variable",
    BIAS: "variable",
    SLOT: "slot",
    COUNTER: "iterations",
}
State = dict[str, np.ndarray]
MOMENTUM = 0.5
"""Of a rule to which the order matters."""


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """What is simulated.

    Attributes:
        momentum: Of the rule; 0 is plain descent, to which no order matters.
        times: How often a step is applied to the tally, where not once.
        counted: The same for the counter.
        overwritten: Steps of which the slot keeps nothing: another one had read it
            before, and assigned it after.
        beside: Steps of one round that are under way together.
    """

    momentum: float = 0.0
    rounds: int = 2
    in_flight: int = 4
    beside: int = 2
    times: Mapping[int, int] = field(default_factory=dict)
    counted: Mapping[int, int] = field(default_factory=dict)
    overwritten: Collection[int] = ()
    gradient: float = 1.0

    def start(self) -> State:
        steps = self.rounds * self.in_flight
        return {
            TALLY: np.linspace(1, 2, steps).astype(np.float32),
            SLOT: np.zeros(steps, np.float32),
            COUNTER: np.array(0, np.int64),
        }

    def run(
        self,
        state: State,
        first: int,
        order: Iterable[tuple[str, int]],
        times: Mapping[int, int] = {},
        counted: Mapping[int, int] = {},
        overwritten: Collection[int] = (),
    ) -> State:
        state = dict(state)
        for place in [place for kind, place in order if kind == "update"]:
            step = first + place
            gradient = np.zeros_like(state[TALLY])
            gradient[step] = self.gradient * (1 + step % 3)
            before = state[SLOT]
            for _ in range(times.get(step, 1)):
                moved = -np.float32(0.1) * gradient
                if self.momentum:
                    moved = np.float32(self.momentum) * state[SLOT] + moved
                    state[SLOT] = moved
                state[TALLY] = state[TALLY] + moved
            if step in overwritten:
                state[SLOT] = before
            state[COUNTER] = state[COUNTER] + counted.get(step, 1)
        return state

    def observe(self, seed: int = 0, orders: int = 32) -> Flight:
        """The cluster took one of the orders that its times allow."""
        rng = np.random.default_rng(seed)
        each = self.in_flight
        begun, ended = self._list_times()
        starts = [self.start()]
        for number in range(self.rounds):
            turn = list_in_turn(range(each))
            starts.append(self.run(starts[-1], number * each, turn))

        def run_all(name: str, make_order, **changes) -> Trace:
            ends = [
                self.run(starts[n], n * each, make_order(n), **changes)
                for n in range(self.rounds)
            ]
            return make_trace(name, ends)

        def draw(n: int) -> list:
            part = slice(n * each, (n + 1) * each)
            return list(draw_order(begun[part], ended[part], rng))

        turn = list_in_turn(range(each))
        commutes = self.momentum == 0
        return Flight(
            tier="exact" if commutes else "bounded",
            in_flight=each,
            observed=make_trace(
                "ps:2+1",
                [
                    self.run(
                        starts[n],
                        n * each,
                        draw(n),
                        times=self.times,
                        counted=self.counted,
                        overwritten=self.overwritten,
                    )
                    for n in range(self.rounds)
                ],
                replica=0,
                notes={"begun": begun, "ended": ended, "tries": [1] * len(begun)},
            ),
            starts=make_trace(
                "schedule",
                starts[1:],
                initial=starts[0],
                notes={"torn": [SLOT] if self.overwritten else []},
            ),
            orders=tuple(
                run_all(f"order {k}", draw if k else lambda _: turn)
                for k in range(1 if commutes else orders)
            ),
            lost={
                place: run_all(
                    f"without {place}",
                    lambda _, place=place: [e for e in turn if e[1] != place],
                )
                for place in range(each)
            },
            again={
                place: run_all(
                    f"twice {place}",
                    lambda _: turn,
                    times={n * each + place: 2 for n in range(self.rounds)},
                )
                for place in range(each)
            },
        )

    def _list_times(self) -> tuple[list[int], list[int]]:
        """Groups of steps begin together and end one after the other."""
        steps = self.rounds * self.in_flight
        begun = []
        for number in range(self.rounds):
            first = number * self.in_flight
            begun += [
                first + place - place % self.beside for place in range(self.in_flight)
            ]
        return begun, list(range(steps))


def make_trace(
    name: str,
    ends: Sequence[State],
    *,
    initial: State | None = None,
    replica: int = WHOLE,
    notes: Mapping[str, object] | None = None,
) -> Trace:
    """A trace with the state after each round."""
    states = dict(enumerate(ends))
    if initial is not None:
        states[INITIAL] = initial
    first = ends[0]
    return Trace(
        name=name,
        replicas=1,
        shards=(8,),
        variables=tuple(
            VariableInfo(
                path=path,
                role=ROLES[path],
                shape=first[path].shape,
                dtype=first[path].dtype.name,
                of=TALLY if path == SLOT else "",
            )
            for path in first
        ),
        values={
            TraceKey(step=n, phase=ROLES[path], variable=path, replica=replica): array
            for n, state in states.items()
            for path, array in state.items()
        },
        notes=notes or {},
    )


def make_pair(
    base: State,
    moved: Sequence[State],
    observed: State,
    *,
    torn: Collection[str] = (),
    led: Collection[str] = (),
) -> Flight:
    """One round of two steps beside each other, of which is given what each adds.

    Args:
        base: What one device comes to; it starts from zeros.
        moved: What each of the two steps adds to that.
        observed: What the cluster left.
        torn: The state that the step leaves open to others.
        led: What it changes by such state, read again.
    """
    zeros = {name: 0 * value for name, value in base.items()}

    def change(sign: int) -> dict[int, Trace]:
        return {
            place: make_trace("x", [{n: base[n] + sign * own[n] for n in base}])
            for place, own in enumerate(moved)
        }

    return Flight(
        tier="bounded",
        in_flight=2,
        observed=make_trace(
            "ps:2+1",
            [observed],
            replica=0,
            notes={"begun": [0, 0], "ended": [0, 1], "tries": [1, 1]},
        ),
        starts=make_trace(
            "starts",
            [zeros],
            initial=zeros,
            notes={"torn": list(torn), "led": list(led)},
        ),
        orders=(make_trace("order", [base]),),
        lost=change(-1),
        again=change(1),
    )
