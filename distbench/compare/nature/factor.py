"""What one device does to a gradient between its tape and its optimizer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from distbench.compare.arrays.aligned import Aligned, align_values
from distbench.compare.arrays.bounds import bound_sum, bound_underflow, find_roundoff
from distbench.compare.arrays.ratio import fit_ratio
from distbench.dyadic import is_power_of_two
from distbench.trace import WHOLE, Trace, TraceKey, Value
from distbench.trace.numbers import Array, densify, is_finite, name_value, take_numbers

_ROUNDS = 2
"""Roundings of a product and a quotient, or of a factor and the product with it."""


@dataclass(frozen=True, slots=True)
class Factor:
    """A number that a gradient is multiplied by.

    Attributes:
        value: The number.
        roundings: How often an element is rounded on the way.
        spread: How far it may lie from that, as a part of it, as far as rounded
            gradients show it.
    """

    value: float
    roundings: int = 0
    spread: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fit:
    """What one gradient shows of its factor: it lies between `low` and `high`."""

    value: float
    roundings: int = 0
    low: float = 1.0
    high: float = 1.0


_ONE = _Fit(value=1.0)
_OPEN = _Fit(value=1.0, low=-math.inf, high=math.inf)
"""What a gradient of 0 shows, which is left as it is by any factor."""


class Factors:
    """By which numbers a program multiplies its gradients on the way; mostly by 1.

    A loss scale, for example, is divided out again.

    Args:
        reference: The single-device run.
        roundings: By variable, how often the cluster rounds its gradient on the way, as
            its graph has it.
    """

    def __init__(
        self, reference: Trace, roundings: Mapping[str, int] | None = None
    ) -> None:
        self._reference = reference
        self._roundings = roundings or {}
        self._known: dict[TraceKey, _Fit | None] = {}

    def find(self, key: TraceKey, *, is_left: bool = False) -> Factor | None:
        """The factor of a gradient, by its step, call and variable.

        None where it is no number: a program that clips between its own reduction and
        the optimizer. Its reduced gradient can only be held against the reference. What
        a clip comes to differs from step to step, so a factor has to be a power of two,
        or one number that the gradients of all steps allow, as they are rounded.

        Args:
            key: Where the gradient is.
            is_left: Whether one device is known to leave out the step.
        """
        factor = self._find_repeated(key, is_left=is_left)
        if factor is None:
            return factor
        own = self._roundings.get(key.variable, 0)
        roundings = max(own, _ROUNDS if self._rounds else 0)
        return replace(factor, roundings=max(factor.roundings, roundings))

    def _find_repeated(self, key: TraceKey, *, is_left: bool) -> Factor | None:
        reduced = self._reference.get(_at_sum(key))
        others = list(self._list_others(key))
        if is_left or reduced is None or not is_finite(reduced):
            # One device skipped the step, or it overflowed: what it would have
            # multiplied by is known only if it never does.
            never = all(other is not None and other.value == 1 for other in others)
            return Factor(1.0) if never else None
        fit = self._find_at(key)
        if fit is None:
            return None
        is_open = math.isinf(fit.low)
        if is_power_of_two(abs(fit.value)) and not is_open:
            return Factor(fit.value, fit.roundings)
        fits = [fit, *(other for other in others if other is not None)]
        low, high = max(f.low for f in fits), min(f.high for f in fits)
        if not others or len(fits) <= len(others) or low > high:
            # Of a gradient of 0 any multiple is 0.
            return Factor(1.0) if is_open else None
        if math.isinf(low):
            return Factor(1.0)
        value = min(max(next(f.value for f in fits if f.low > -math.inf), low), high)
        spread = max(high - value, value - low) / abs(value) if value else math.inf
        return Factor(value, max(f.roundings for f in fits), spread)

    @cached_property
    def _rounds(self) -> bool:
        """Whether one device rounds any gradient on the way.

        What it leaves as it is by chance, as most numbers times 40 and divided by it
        again, it may round on a cluster, where gradients are others.
        """
        found = self._reference.select(phase="reduced_gradient", replica=WHOLE)
        factors = (self._find_at(key) for key, _ in found)
        return any(factor is None or factor.roundings for factor in factors)

    def find_sign(self, key: TraceKey) -> float:
        """-1 where one device turns a gradient round, as who climbs; else 1."""
        fits = (self._find_at(key), *self._list_others(key))
        known = (fit.value for fit in fits if fit is not None and fit is not _OPEN)
        return math.copysign(1.0, next(known, 1.0))

    def scales(self, key: TraceKey) -> bool:
        """Whether one device multiplies a gradient by some number in every step.

        A clip by a norm does, by another number each time.
        """
        found = (self._find_at(key), *self._list_others(key))
        return all(factor is not None for factor in found)

    @cached_property
    def clips(self) -> bool:
        """Whether one device multiplies some gradient by less than 1, and not always.

        Where the whole batch gives another gradient than the shards, that may befall
        one that it leaves as it is on one device.
        """
        found = self._reference.select(phase="reduced_gradient", replica=WHOLE)
        factors = [self._find_at(key) for key, value in found if np.any(densify(value))]
        values = {factor.value for factor in factors if factor is not None}
        # A loss scale is a power of two.
        limited = (v for v in values if 0 < v < 1 and not is_power_of_two(v))
        return 1.0 in values and any(limited)

    def _list_others(self, key: TraceKey) -> Iterator[_Fit | None]:
        return (
            self._find_at(replace(key, step=step))
            for step in range(self._reference.steps)
            if step != key.step
        )

    def _find_at(self, key: TraceKey) -> _Fit | None:
        whole = _at_sum(key)
        if whole not in self._known:
            self._known[whole] = _find_fit(self._reference, whole)
        return self._known[whole]


def _at_sum(key: TraceKey) -> TraceKey:
    return replace(key, phase="reduced_gradient", replica=WHOLE)


def _show_same(value: Value | None) -> _Fit:
    return _ONE if value is None or np.any(take_numbers(value)) else _OPEN


def _find_fit(reference: Trace, key: TraceKey) -> _Fit | None:
    reduced = reference.get(key)
    local = reference.get(replace(key, phase="local_gradient"))
    # What was read of files is one array, if it is equal.
    if reduced is None or local is None or reduced is local:
        return _show_same(reduced)
    left, right = align_values((reduced, local))
    if np.array_equal(left.total, right.total, equal_nan=True):
        return _show_same(local)
    if not (np.isfinite(left.total).all() and np.isfinite(right.magnitude).all()):
        return None
    # A row may come added up: that rounds once for each slice but the first.
    added = right.number - 1
    dtype = name_value(reduced)
    u = find_roundoff(dtype)
    apart = np.abs(left.total - right.total)
    if np.all(apart <= bound_sum(right.magnitude, added, u)):
        return _ONE
    bound = bound_sum(right.magnitude, added + _ROUNDS, u)
    heard = np.isfinite(bound)  # or a row is of so many slices that it may be anything
    ratio = _fit(left.total[heard], right.total[heard])
    if not ratio:
        return None
    bound = abs(ratio) * bound + _bound_lost(right, abs(ratio), dtype)
    low, high = _limit(left.total, right.total, bound)
    if low > high:
        return None
    power = _round_to_power(ratio)
    if is_power_of_two(abs(power)):
        if np.array_equal(left.total, power * right.total):
            return _Fit(value=power, low=power, high=power)
        if low <= power <= high:
            return _Fit(value=power, roundings=_ROUNDS, low=low, high=high)
    value = min(max(ratio, low), high)
    return _Fit(value=value, roundings=_ROUNDS, low=low, high=high)


def _fit(left: Array, right: Array) -> float | None:
    fit = fit_ratio(left, right)
    if fit is None or fit.ratio == 0:
        return None
    # A ratio that is far from 1 is known in all digits only beside itself.
    again = fit_ratio(left, fit.ratio * right)
    return fit.ratio if again is None else fit.ratio * again.ratio


def _bound_lost(right: Aligned, factor: float, dtype: str) -> Array:
    """What products that are no normal numbers lose; of slices none is known."""
    least = np.where(np.equal(right.number, 1), factor * np.abs(right.total), 0.0)
    lost = right.number * bound_underflow(least, dtype)
    return np.where(right.magnitude > 0, lost, 0.0)


def _limit(left: Array, right: Array, bound: Array) -> tuple[float, float]:
    """Between which numbers a factor lies that leaves each element within its bound.

    The first is the larger one where there is none.
    """
    some = right != 0
    if not np.all(np.abs(left)[~some] <= bound[~some]):
        return math.inf, -math.inf
    centre, half = left[some] / right[some], bound[some] / np.abs(right[some])
    return float(np.max(centre - half)), float(np.min(centre + half))


def _round_to_power(factor: float) -> float:
    """The power of two that a fitted factor stands for, or the factor itself."""
    power = math.copysign(2.0 ** round(math.log2(abs(factor))), factor)
    return power if abs(factor / power - 1) < 2 * find_roundoff("float32") else factor
