"""What steps in flight left behind, against all that they may have left."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from distbench.flight import Flight
from distbench.trace import STATE, WHOLE, Phase, Trace, TraceKey
from distbench.trace.numbers import Array, densify


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Envelope:
    """A variable after a round, and what each of its elements may be.

    One order leaves one value, and then all bits count. Of several, an element may lie
    where one of them put it, or as far beyond as the orders lie apart: a draw of a
    normal distribution lies farther from 32 others with a chance of about 1e-6, and
    one of few values, as an element that tells in which place its step came, never.

    Attributes:
        round: Number of the round.
        phase: Role of the variable.
        variable: Its path.
        observed: What the cluster left: float64.
        start: What the round started from.
        middle: Mean over the orders.
        low: The least that each element may be.
        high: The most.
    """

    round: int
    phase: Phase
    variable: str
    observed: Array
    start: Array
    middle: Array
    low: Array
    high: Array

    def leaves(self, value: Array) -> Array:
        """Which elements of a value lie beyond the envelope: bool."""
        inside = (value >= self.low) & (value <= self.high)
        return np.asarray(~(inside | (np.isnan(value) & np.isnan(self.middle))))

    @property
    def wrong(self) -> Array:
        """Which elements of what was observed lie beyond."""
        return self.leaves(self.observed)

    @property
    def error(self) -> float:
        """How far the worst element lies from the middle of what it may be."""
        return self._measure_worst()[0]

    @property
    def bound(self) -> float:
        """How far that element may lie from there."""
        return self._measure_worst()[1]

    @property
    def error_over_bound(self) -> float:
        """Their quotient, above 1 only where an element lies beyond the envelope."""
        if self.bound:
            return self.error / self.bound
        return float("inf") if self.wrong.any() else 0.0

    @property
    def rank(self) -> tuple[float, float]:
        """How bad it is: how far beyond; where all bits count, by the error."""
        return self.error_over_bound, self.error

    @property
    def key(self) -> TraceKey:
        """Where one device has the same after the round."""
        return TraceKey(step=self.round, phase=self.phase, variable=self.variable)

    def _measure_worst(self) -> tuple[float, float]:
        """Error and bound of the element that is farthest off, relative to its own."""
        if not self.observed.size:
            return 0.0, 0.0
        off = np.abs(self.observed - (self.low + self.high) / 2).ravel()
        reach = ((self.high - self.low) / 2).ravel()
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.where(off > 0, off / reach, off)
        # NaN is off by nothing where it is due, and else by more than any number.
        lost = np.isnan(ratios)
        ratios[lost] = np.where(self.wrong.ravel()[lost], np.inf, 0.0)
        worst = int(np.lexsort((off, ratios))[-1])
        return float(off[worst]), float(reach[worst])


def list_envelopes(flight: Flight) -> Iterator[Envelope]:
    """An envelope for each variable and round, in causal order within a round."""
    for number in range(flight.observed.steps):
        for phase in STATE:
            for key, value in flight.observed.select(step=number, phase=phase):
                orders = stack_orders(flight, key)
                low, high = orders.min(axis=0), orders.max(axis=0)
                apart = high - low
                yield Envelope(
                    round=number,
                    phase=phase,
                    variable=key.variable,
                    observed=densify(value),
                    start=_find_start(flight, key),
                    middle=orders.mean(axis=0) if len(orders) > 1 else orders[0],
                    low=low - apart,
                    high=high + apart,
                )


def stack_orders(flight: Flight, key: TraceKey) -> Array:
    """What one device has of a variable after a round, in each order: [orders, ...]."""
    return np.stack([find_end(order, key) for order in flight.orders])


def find_end(trace: Trace, key: TraceKey) -> Array:
    """What one device has of a variable after a round."""
    value = trace.get(key.at(WHOLE))
    if value is None:
        raise KeyError(f"{trace.name} lacks {key}")
    return densify(value)


def _find_start(flight: Flight, key: TraceKey) -> Array:
    found = flight.starts.get(key.at(WHOLE).before)
    if found is None:
        raise KeyError(f"no start of {key}")
    return densify(found)
