"""Ranks causes by how much of what is wrong they explain."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from distbench.compare.pair import Pair
from distbench.compare.values import Array, are_equal, measure_norm
from distbench.diagnose.addends import find_untouched
from distbench.diagnose.context import Context, Hypothesis

NEEDED = 0.9
"""Share of the residual that a cause must explain to be named."""
_LEAST_NUMBERS = 4
"""Wrong numbers without which a cause has to explain all, and nine tenths do not do. Of
two, one direction in 16 comes as near to any cause's, of three one in 200, of four one
in 2,300 (the share of a sphere within asin 0.1 of a line), and a hundred are tried."""
ALL = 0.999
"""Share of it that a cause explains where only rounding is left."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ranked:
    """A cause with how well it fits.

    Attributes:
        hypothesis: The cause.
        confidence: Share of the residual's norm that it explains, the mean over all
            wrong values, so that a small variable weighs as much as a large one.
        least: The smallest share over the wrong values.
        full: Whether what it leaves is no more than rounding, everywhere.
        is_chance: Whether so few numbers are wrong that any direction is near theirs.
    """

    hypothesis: Hypothesis
    confidence: float
    least: float
    full: bool
    is_chance: bool

    @property
    def accepted(self) -> bool:
        """Whether the cause may be named."""
        most = self.confidence >= NEEDED and self.least >= 0.5
        return self.full or (most and not self.is_chance)


def find_best(context: Context, hypotheses: Iterable[Hypothesis]) -> Ranked | None:
    """The cause that explains most of all that is wrong.

    What explains everything down to rounding comes before what does not, and among
    those the first registered: a cause without free parameters comes before a fitted
    one, which always fits at least as well. So the search ends at the first of them.

    What was done to addends never explains their plain sum, whatever it comes to.
    """
    best: Ranked | None = None
    untouched = find_untouched(context)
    wholes = [measure_error(case) for case in context.cases]
    for hypothesis in hypotheses:
        least = 0.0 if best is None else best.confidence
        beyond = () if hypothesis.of_due else untouched
        ranked = _rate_hypothesis(context, hypothesis, wholes, least, beyond)
        if ranked is None:
            continue
        if ranked.full:
            return ranked
        if best is None or round(ranked.confidence, 2) > round(best.confidence, 2):
            best = ranked
    return best


def _rate_hypothesis(
    context: Context,
    hypothesis: Hypothesis,
    wholes: Sequence[float],
    least: float,
    beyond: Collection[int],
) -> Ranked | None:
    """Measure what a cause leaves unexplained; None once it cannot reach `least`.

    Args:
        context: The wrong values.
        hypothesis: The cause.
        wholes: Norm of what is wrong with each case.
        least: Confidence of a cause that was rated before.
        beyond: Numbers of the cases that it cannot explain.
    """
    shares: list[float] = []
    full = True
    count = len(context.cases)
    for number, case in enumerate(context.cases):
        if not full and (sum(shares) + count - number) < least * count:
            return None
        predicted = hypothesis.predicted.get(number)
        if predicted is None or number in beyond:
            shares.append(0.0)
            full = False
            continue
        share = _measure_share(case, predicted, wholes[number])
        shares.append(share)
        full = full and (
            share == 1.0 or (share >= 0.5 and context.matches(case, predicted))
        )
    confidence = float(np.mean(shares)) if shares else 0.0
    return Ranked(
        hypothesis=hypothesis,
        confidence=confidence,
        least=min(shares, default=0.0),
        full=full and bool(shares),
        is_chance=_count_numbers(context.cases) < _LEAST_NUMBERS,
    )


def _count_numbers(cases: Sequence[Pair]) -> int:
    """How many numbers are wrong; an array that replicas have alike counts once."""
    found: dict[bytes, int] = {}
    for case in cases:
        if sum(found.values()) >= _LEAST_NUMBERS:
            break
        error = np.asarray(case.observed - case.expected)
        found[error.tobytes()] = int(np.count_nonzero(error))
    return sum(found.values())


def measure_error(case: Pair) -> float:
    """‖observed - expected‖."""
    with np.errstate(invalid="ignore", over="ignore"):
        return measure_norm(case.observed - case.expected)


def _measure_share(case: Pair, predicted: Array, whole: float) -> float:
    """1 - ‖observed - predicted‖ / ‖observed - expected‖, at least 0."""
    if np.shape(predicted) != case.observed.shape:
        return 0.0
    if are_equal(case.observed, predicted):
        return 1.0
    if not np.isfinite(whole) or whole == 0:
        return 0.0
    with np.errstate(invalid="ignore", over="ignore"):
        rest = measure_norm(case.observed - predicted)
    return max(0.0, 1 - rest / whole) if np.isfinite(rest) else 0.0
