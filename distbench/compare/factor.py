"""What one device does to a gradient between its tape and its optimizer."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from distbench.compare.bounds import bound_sum, find_roundoff
from distbench.compare.ratio import fit_ratio
from distbench.compare.values import Array, align_values, densify, name_value
from distbench.dyadic import is_power_of_two
from distbench.trace import WHOLE, Trace, TraceKey

_ROUNDS = 2
"""Roundings of a product and a quotient, or of a factor and the product with it."""


@dataclass(frozen=True, slots=True)
class Factor:
    """A number that a gradient is multiplied by.

    Attributes:
        value: The number.
        roundings: How often an element is rounded on the way.
    """

    value: float
    roundings: int = 0


class Factors:
    """By which numbers a program multiplies its gradients on the way; mostly by 1.

    A loss scale, for example, is divided out again.

    Args:
        reference: The single-device run.
    """

    def __init__(self, reference: Trace) -> None:
        self._reference = reference
        self._known: dict[TraceKey, Factor | None] = {}

    def find(self, key: TraceKey) -> Factor | None:
        """The factor of a gradient, by its step, call and variable.

        None where it is no number: a program that clips between its own reduction and
        the optimizer. Its reduced gradient can only be held against the reference. What
        a clip comes to differs from step to step, so a factor has to be a power of two,
        or that of all steps.
        """
        factor = self._find_repeated(key)
        if factor is None or not self._rounds:
            return factor
        return replace(factor, roundings=_ROUNDS)

    def _find_repeated(self, key: TraceKey) -> Factor | None:
        reduced = self._reference.get(_at_sum(key))
        others = list(self._list_others(key))
        if reduced is None or not np.isfinite(densify(reduced)).all():
            # One device skipped the step, or it overflowed: what it would have
            # multiplied by is known only if it never does.
            never = all(other is not None and other.value == 1 for other in others)
            return Factor(1.0) if never else None
        factor = self._find_at(key)
        if factor is None or is_power_of_two(factor.value):
            return factor
        u = find_roundoff("float32")
        alike = [
            other is not None and abs(other.value / factor.value - 1) < 8 * u
            for other in others
        ]
        return factor if alike and all(alike) else None

    @cached_property
    def _rounds(self) -> bool:
        """Whether one device rounds any gradient on the way.

        What it leaves as it is by chance, as most numbers times 40 and divided by it
        again, it may round on a cluster, where gradients are others.
        """
        found = self._reference.select(phase="reduced_gradient", replica=WHOLE)
        factors = (self._find_at(key) for key, _ in found)
        return any(factor is None or factor.roundings for factor in factors)

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
        limited = (v for v in values if v < 1 and not is_power_of_two(v))
        return 1.0 in values and any(limited)

    def _list_others(self, key: TraceKey) -> Iterator[Factor | None]:
        return (
            self._find_at(replace(key, step=step))
            for step in range(self._reference.steps)
            if step != key.step
        )

    def _find_at(self, key: TraceKey) -> Factor | None:
        whole = _at_sum(key)
        if whole not in self._known:
            self._known[whole] = _find_factor(self._reference, whole)
        return self._known[whole]


def _at_sum(key: TraceKey) -> TraceKey:
    return replace(key, phase="reduced_gradient", replica=WHOLE)


def _find_factor(reference: Trace, key: TraceKey) -> Factor | None:
    reduced = reference.get(key)
    local = reference.get(replace(key, phase="local_gradient"))
    if reduced is None or local is None or reduced is local:
        return Factor(1.0)
    left, right = align_values((reduced, local))
    u = find_roundoff(name_value(reduced))
    added = 0
    if left.counts is not None and right.counts is not None:
        added = int(right.counts.max(initial=1))
    if _are_near(left.total, right.total, right.magnitude, added, u):
        return Factor(1.0)
    fit = fit_ratio(left.total, right.total)
    if fit is None or fit.ratio <= 0:
        return None
    value = _round_to_power(fit.ratio)
    scaled, magnitude = value * right.total, value * right.magnitude
    for roundings in (0, _ROUNDS) if is_power_of_two(value) else (_ROUNDS,):
        if _are_near(left.total, scaled, magnitude, added + roundings, u):
            return Factor(value, roundings)
    return None


def _are_near(
    left: Array, right: Array, magnitude: Array, roundings: int, u: float
) -> bool:
    if roundings == 0:
        return bool(np.array_equal(left, right, equal_nan=True))
    return bool(np.all(np.abs(left - right) <= bound_sum(magnitude, roundings, u)))


def _round_to_power(factor: float) -> float:
    """The power of two that a fitted factor stands for, or the factor itself."""
    power = 2.0 ** round(math.log2(factor))
    return power if abs(factor / power - 1) < 2 * find_roundoff("float32") else factor
