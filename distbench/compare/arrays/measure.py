"""Holds one observed value against one expected value."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from distbench.compare.arrays.bounds import SIGMAS
from distbench.compare.arrays.ratio import RatioFit, fit_ratio
from distbench.trace.numbers import Array, are_equal, measure_errors, measure_size


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Margin:
    """How far a correct value may lie from the expected one.

    Attributes:
        bound: Allowed absolute error, for each element or for all.
        ratio: Half-width of the fitted ratio about 1; infinite where no ratio is fit.
        total: Half-width of the sum of all errors; infinite where it says nothing.
    """

    bound: Array | float = 0.0
    ratio: float = math.inf
    total: float = math.inf

    def widen(self, slack: float, norm: float) -> Margin:
        """For values of this norm that may all together lie so much farther apart."""
        share = slack / norm if norm > 0 else math.inf
        return replace(self, bound=self.bound + slack, ratio=self.ratio + share)

    @property
    def widest(self) -> float:
        """The largest error that an element is allowed."""
        if isinstance(self.bound, float):
            return float(self.bound)
        return float(np.max(self.bound, initial=0.0))


BITWISE = Margin()


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The outcome of one test.

    Attributes:
        error: Largest absolute error.
        bound: What the element with the largest error ÷ bound was allowed.
        error_over_bound: Over all tests (elements, ratio, sum): the largest quotient.
        ratio: Fitted ratio, or None.
        wrong: Whether any test failed.
    """

    error: float = 0.0
    bound: float = 0.0
    error_over_bound: float = 0.0
    ratio: float | None = None
    wrong: bool = False


def measure_error(observed: Array, expected: Array, margin: Margin) -> Measured:
    """Test an observed value by its elements, its fitted ratio and its sum."""
    if observed.shape != expected.shape:
        return Measured(error=math.inf, error_over_bound=math.inf, wrong=True)
    if are_equal(observed, expected):
        return Measured(bound=margin.widest, ratio=1.0)
    with np.errstate(all="ignore"):
        difference = observed - expected
        error = measure_errors(observed, expected)
        largest = measure_size(error)
        quotient, bound = _find_worst(error, largest, margin.bound)
    quotients = [quotient]
    fit = _fit_known(observed, expected, margin.bound)
    if fit is not None and margin.ratio < math.inf:
        # Both must be exceeded: what rounding allows, and what the scatter of these
        # very numbers about the fitted line allows.
        allowed = max(margin.ratio, SIGMAS * fit.error)
        quotients.append(_divide(abs(fit.ratio - 1), allowed))
    if margin.total < math.inf and np.all(np.isfinite(difference)):
        quotients.append(_divide(abs(float(np.sum(difference))), margin.total))
    return Measured(
        error=largest,
        bound=bound,
        error_over_bound=max(quotients),
        ratio=None if fit is None else fit.ratio,
        wrong=max(quotients) > 1,
    )


def is_wrong(observed: Array, expected: Array, margin: Margin) -> bool:
    """Whether `measure_error` would call it wrong; the first failing test decides."""
    if margin is BITWISE:
        return not are_equal(observed, expected)
    error = np.abs(observed - expected)
    if bool((error > margin.bound).any()):
        return True
    if bool(np.isnan(error).any()):
        return measure_error(observed, expected, margin).wrong
    if margin.total < math.inf or margin.ratio < math.inf:
        return measure_error(observed, expected, margin).wrong
    return False


def _fit_known(
    observed: Array, expected: Array, bound: Array | float
) -> RatioFit | None:
    """The ratio of the elements of which anything is due."""
    known = np.isfinite(bound)
    if np.all(known) or not np.any(known):
        return fit_ratio(observed, expected)
    known = np.broadcast_to(known, observed.shape)
    return fit_ratio(observed[known], expected[known])


def _find_worst(
    error: Array, largest: float, bound: Array | float
) -> tuple[float, float]:
    """The largest error ÷ bound of an element, and that element's bound."""
    if isinstance(bound, float):
        return _divide(largest, bound), float(bound)
    bounds = np.broadcast_to(bound, error.shape)
    quotient = np.where(error == 0, 0.0, error / bounds)
    quotient = np.where(np.isnan(quotient), math.inf, quotient)
    place = np.unravel_index(int(np.argmax(quotient)), quotient.shape)
    return float(quotient[place]), float(bounds[place])


def _divide(error: float, bound: float) -> float:
    if error == 0:
        return 0.0
    return float(error / bound) if bound > 0 and error < math.inf else math.inf
