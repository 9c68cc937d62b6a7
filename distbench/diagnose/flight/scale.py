"""Steps in flight that all change their variables too much, or too little."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from distbench.compare.arrays.ratio import RatioFit, fit_ratio
from distbench.compare.envelope import Envelope
from distbench.flight import Flight

_MOST_LEFT = 0.2
"""Share of a variable's error, and of its change, that the factor may leave: the orders
differ, and gradients are of a state that has moved otherwise."""
_ALIKE = 0.1
"""By so much of themselves the factors of the variables may differ, for the same
reason; one as near to a whole number is of steps that are taken again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonFactor:
    """By how much every step of every round was too large.

    Attributes:
        ratio: Of what the variables moved by to what is due.
        confidence: Share of the norm of the error, or of the change where that is
            smaller, that this explains, where it does least.
        wrong: The variables, one for each round.
    """

    ratio: float
    confidence: float
    wrong: tuple[Envelope, ...]


def find_common_factor(
    flight: Flight, envelopes: Sequence[Envelope]
) -> CommonFactor | None:
    """One factor that explains each variable that is trained, in each round.

    A parameter server applies each step by itself: who divides by the number of workers
    as well has every step count less, which no number of lost steps explains. Where
    other steps may overwrite a variable, half of them may be lost.
    """
    models = [e for e in envelopes if e.phase == "variable"]
    trained = tuple(e for e in models if np.any(e.middle != e.start))
    if "variable" in flight.torn or not all(e.wrong.any() for e in trained):
        return None
    fits = [fit_ratio(e.observed - e.start, e.middle - e.start) for e in trained]
    found = [fit for fit in fits if fit is not None]
    if not found or len(found) < len(fits):
        return None
    ratio = float(np.median([fit.ratio for fit in found]))
    left = max(map(_measure_rest, found))
    are_alike = all(abs(fit.ratio - ratio) <= _ALIKE * abs(ratio) for fit in found)
    is_whole = round(ratio) >= 1 and abs(ratio - round(ratio)) <= _ALIKE
    if left > _MOST_LEFT or not are_alike or is_whole:
        return None
    return CommonFactor(ratio=ratio, confidence=1 - left, wrong=trained)


def _measure_rest(fit: RatioFit) -> float:
    """What a ratio leaves, as a share of the error or of the change, the smaller.

    Nearly all of the error is explained by any small ratio, and so it is where nearly
    all steps are lost: what did change then has to have that ratio as well.
    """
    if fit.ratio == 0:
        return np.inf
    return fit.residual_share * max(1.0, abs(1 - 1 / fit.ratio))
