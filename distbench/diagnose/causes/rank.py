"""Ranks causes by how much of what is wrong they explain."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from distbench.compare.arrays.pair import Pair
from distbench.diagnose.clues.addends import find_untouched
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.trace.numbers import Array, are_equal, measure_norm

NEEDED = 0.9
"""Share of the residual that a cause must explain to be named."""
_NEEDED_OF_CHANCE = 0.8
"""The same where random numbers scatter what is right, and the rest is no more."""
_LEAST_NUMBERS = 4
"""Wrong numbers without which a cause has to explain all, and nine tenths do not do. Of
two, one direction in 16 comes as near to any cause's, of three one in 200, of four one
in 2,300 (the share of a sphere within asin 0.1 of a line), and a hundred are tried."""
_MOST_CHANCE = 1e-3
"""Chance above which a cause does not explain all: where rounding is coarse, a value
that has nothing to do with the observed one may lie within it."""
LEAST = 0.5
"""Share of each wrong value that a cause must explain where it leaves a part. One that
leaves more than it explains is no hint at the cause either."""
_ENOUGH_NUMBERS = 10
"""Wrong numbers of which nine tenths are never explained by chance."""
ALL = 0.999
"""Share of it that a cause explains where only rounding is left."""
_Numbers = dict[tuple[frozenset[int], int], list[int]]
"""How many numbers of each case are wrong that no other has, by the cases that are left
out and by how many numbers were fitted."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ranked:
    """A cause with how well it fits.

    Attributes:
        hypothesis: The cause.
        confidence: Share of the residual's norm that it explains, the mean over all
            wrong values, so that a small variable weighs as much as a large one.
        least: The smallest share over the wrong values.
        full: Whether what it leaves is no more than rounding, everywhere, no more than
            a tenth of what is wrong, and too little for chance.
        is_chance: Whether it may come near by chance: so few numbers are wrong, or so
            many values were to be chosen from.
    """

    hypothesis: Hypothesis
    confidence: float
    least: float
    full: bool
    is_chance: bool

    @property
    def accepted(self) -> bool:
        """Whether the cause may be named."""
        most = self.confidence >= NEEDED and self.least >= LEAST
        return self.full or (most and not self.is_chance)


def find_best(context: Context, hypotheses: Iterable[Hypothesis]) -> Ranked | None:
    """The cause that explains most of all that is wrong.

    What explains everything down to rounding comes before what does not, and among
    those the first registered: a cause without free parameters comes before a fitted
    one, which always fits at least as well. So the search ends at the first of them
    that leaves nothing. Where rounding is coarse much may lie within it, and a later
    one comes first if it leaves less than half as much.

    What was done to addends never explains their plain sum, whatever it comes to.
    """
    best: Ranked | None = None
    untouched = find_untouched(context)
    wholes = [measure_error(case) for case in context.cases]
    numbers: _Numbers = {}
    for hypothesis in hypotheses:
        least = 0.0 if best is None else best.confidence
        beyond = () if hypothesis.of_due else untouched
        ranked = _rate_hypothesis(context, hypothesis, wholes, numbers, least, beyond)
        if ranked is None:
            continue
        if ranked.full and ranked.least >= ALL:
            return ranked
        if best is None or _comes_before(ranked, best):
            best = ranked
    return best


def find_full(context: Context, hypotheses: Iterable[Hypothesis]) -> Ranked | None:
    """The best cause where it leaves nothing, else None; see `find_best`."""
    best = find_best(context, hypotheses)
    return best if best is not None and best.full else None


def _comes_before(later: Ranked, first: Ranked) -> bool:
    """Whether a cause explains more than one that was registered before it."""
    if later.full != first.full:
        return later.full
    if later.full:
        return 1 - later.confidence < (1 - first.confidence) / 2
    return round(later.confidence, 2) > round(first.confidence, 2)


def _rate_hypothesis(
    context: Context,
    hypothesis: Hypothesis,
    wholes: Sequence[float],
    numbers: _Numbers,
    least: float,
    beyond: Collection[int],
) -> Ranked | None:
    """Measure what a cause leaves unexplained; None once it cannot reach `least`.

    None also if as many numbers were fitted as are wrong: that explains anything.

    Args:
        context: The wrong values.
        hypothesis: The cause.
        wholes: Norm of what is wrong with each case.
        numbers: Filled here.
        least: Confidence of a cause that was rated before.
        beyond: Numbers of the cases that it cannot explain.
    """
    shares: list[float] = []
    full = True
    asked = [n for n in range(len(context.cases)) if n not in hypothesis.rounded]
    count = len(asked)
    known = frozenset(hypothesis.rounded), hypothesis.fitted
    if known not in numbers:
        most = _ENOUGH_NUMBERS + hypothesis.fitted
        numbers[known] = _count_numbers([context.cases[n] for n in asked], most)
    counted = numbers[known]
    free = sum(counted) - hypothesis.fitted
    if hypothesis.fitted and free <= 0:
        return None
    draws = context.evidence.reference.draws
    needed = _NEEDED_OF_CHANCE if draws else NEEDED
    for place, number in enumerate(asked):
        case = context.cases[number]
        if not full and (sum(shares) + count - place) < least * count:
            return None
        predicted = hypothesis.predicted.get(number)
        if predicted is None or number in beyond:
            shares.append(0.0)
            full = False
            continue
        share = _measure_share(case, predicted, wholes[number])
        shares.append(share)
        full = full and (
            share == 1.0 or (share >= needed and context.matches(case, predicted))
        )
    confidence = float(np.mean(shares)) if shares else 0.0
    chance = _measure_chance(shares, counted, hypothesis.choices)
    if hypothesis.fitted:
        chance **= free / sum(counted)
    is_chance = chance >= _MOST_CHANCE
    return Ranked(
        hypothesis=hypothesis,
        confidence=confidence,
        least=min(shares, default=0.0),
        full=full and not is_chance,
        is_chance=is_chance or free < _LEAST_NUMBERS,
    )


def _count_numbers(cases: Sequence[Pair], most: int) -> list[int]:
    """How many numbers of each case are wrong, up to what suffices for all, `most`.

    An array that replicas have alike counts once.
    """
    counts: list[int] = []
    seen: set[bytes] = set()
    left = most
    for case in cases:
        count = 0
        if left > 0:
            error = np.asarray(case.observed - case.expected)
            numbers = error.tobytes()
            count = 0 if numbers in seen else int(np.count_nonzero(error))
            seen.add(numbers)
            left -= count
        counts.append(count)
    return counts


def _measure_chance(
    shares: Sequence[float], numbers: Sequence[int], choices: int
) -> float:
    """The chance that something as wrong as the observed values is as near to them.

    Each number would be off by as much in any direction: of n numbers a share of
    (rest ÷ error)ⁿ is as near as the prediction, or of those that could be chosen one.

    Args:
        shares: What is explained of each case.
        numbers: How many wrong numbers count for each.
        choices: Among how many values each number was chosen.
    """
    return math.prod(
        min(1.0, choices * (1 - share)) ** number
        for share, number in zip(shares, numbers, strict=True)
    )


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
