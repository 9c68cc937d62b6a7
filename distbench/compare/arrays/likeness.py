"""How alike two recorded values are that no bound is known for.

Two runs of a user's own are compared without twins that would measure their noise. What
is rounding and what is wrong is told by the digits that agree: a number that went
another way through many sums loses some of its last digits (a correct float32 network
was seen at 2,000 roundings), while a factor, a missing addend or an old value leaves
few right. Half of the digits is where the two are told apart.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from distbench.compare.arrays.bounds import find_roundoff
from distbench.compare.arrays.ratio import fit_ratio
from distbench.trace.numbers import (
    Array,
    are_equal,
    measure_errors,
    measure_finite,
    measure_size,
)

Status = Literal["equal", "near", "different", "missing"]
_MOST_STATES = 4
"""Roundings in the change of a state: each of two runs stores it before and after."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Likeness:
    """What two values have in common.

    Attributes:
        status: `equal` bit by bit, `near` if they agree in half of their digits, else
            `different`.
        error: Largest absolute error.
        relative: The same ÷ the largest value that was expected.
        ulps: The same in units of the last place of the largest element.
        ratio: Fitted ratio, of state that of what the step changed; None where nothing
            was expected.
        undecided: Elements of which nothing is told: their gradients were noise.
        is_noise: Whether it is alike only because all of it is less than rounding
            leaves of larger values.
    """

    status: Status
    error: float = 0.0
    relative: float = 0.0
    ulps: float = 0.0
    ratio: float | None = None
    undecided: int = 0
    is_noise: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Before:
    """State before a step: what is compared is what the step made of it.

    Attributes:
        observed: In one run.
        expected: In the other.
        was_near: Whether these were alike; what they differ by is then no news.
    """

    observed: Array
    expected: Array
    was_near: bool


def find_half(dtype: str) -> float:
    """The relative error that leaves half of a dtype's digits; 0 for whole numbers."""
    return math.sqrt(find_roundoff(dtype))


def measure_likeness(
    observed: Array,
    expected: Array,
    dtype: str,
    *,
    half: float,
    floor: float = 0.0,
    before: Before | None = None,
    noise: npt.NDArray[np.bool_] | None = None,
) -> Likeness:
    """Compare two values of the same place.

    Args:
        observed: The value of the one run.
        expected: That of the other run.
        dtype: The dtype in which they were stored.
        half: Relative error up to which they are alike.
        floor: An error that is below one unit in the last place of larger values that
            they were computed along with.
        before: What they were before the step, if they are state.
        noise: Elements to leave out.
    """
    if observed.shape != expected.shape:
        return Likeness(status="different", error=math.inf, relative=math.inf)
    if are_equal(observed, expected):
        return Likeness(status="equal", ratio=1.0)
    u = find_roundoff(dtype)
    with np.errstate(all="ignore"):
        error = measure_errors(observed, expected)
        changed = expected if before is None else expected - before.expected
        made = observed if before is None else observed - before.observed
        kept = half * max(map(measure_finite, (changed, made)))
        allowed: Array | float = kept + floor
        if before is not None:
            size = np.maximum(np.abs(observed), np.abs(expected))
            # No rounding is as large as what is not finite.
            size = np.where(np.isfinite(size), size, 0.0)
            allowed = allowed + _MOST_STATES * u * size
            if before.was_near:
                allowed = allowed + measure_errors(before.observed, before.expected)
        wrong = error > (allowed if u else 0.0)
        if noise is not None and noise.shape == error.shape:
            wrong &= ~noise
            error = np.where(noise, 0.0, error)
        scale = measure_finite(expected)
        largest = measure_size(error)
    unit = 2 * u * 2.0 ** (math.frexp(scale)[1] - 1)
    fit = fit_ratio(made, changed)
    return Likeness(
        status="different" if bool(wrong.any()) else "near",
        error=largest,
        relative=largest / scale if scale else math.inf if largest else 0.0,
        ulps=largest / unit if unit and scale else math.inf if largest else 0.0,
        ratio=None if fit is None else fit.ratio,
        undecided=0 if noise is None else int(np.count_nonzero(noise)),
        is_noise=floor > 0 and not wrong.any() and largest > kept,
    )


def find_noise(
    observed: Array, expected: Array, half: float
) -> npt.NDArray[np.bool_] | None:
    """Elements that lack half of their own digits, though the whole is alike.

    A rule that divides by a gradient's size, or takes its sign, makes whole steps of
    them. None where there are none.
    """
    if observed.shape != expected.shape:
        return None
    size = np.maximum(np.abs(observed), np.abs(expected))
    with np.errstate(invalid="ignore"):
        noise = np.abs(observed - expected) > half * size
    return noise if bool(noise.any()) else None
