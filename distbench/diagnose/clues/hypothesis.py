"""The form in which a possible cause is told."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from distbench.trace import Phase
from distbench.trace.numbers import Array

NONLINEAR = "nonlinear-before-reduction"
"""Says of whatever is done to addends before their sum that it is done."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Hypothesis:
    """A possible cause and what the wrong values would be under it.

    Attributes:
        code: Finding code.
        predicted: Value under this cause, by number of the case; of the case's shape.
        detail: What happened, as the middle part of a sentence.
        replicas: Replicas that the cause names; None for those that are wrong.
        ratio: A ratio that says more than the fitted one.
        phase: Phase to report; None for that of the wrong values.
        of_due: Whether it is about the size that a sum should have, and not about what
            was done to its addends. Of an observed value that is the plain sum of its
            addends, only such a cause can be true.
        choices: From how many values each number of a prediction was chosen as the
            nearest: then chance comes near as often.
        fitted: How many numbers were fitted to the observed values: these speak for it
            only if more than so many are wrong.
        rounded: Numbers of cases that are right under it but for rounding on their way:
            these speak neither for it nor against it.
        advice: What to do, where the code's own advice does not fit.
        foretells: Whether it says what the values would be. What says no more than that
            something is wrong predicts what was observed, and explains no number.
        beside: A second mistake, of some of the values: the prediction has it in it.
    """

    code: str
    predicted: Mapping[int, Array]
    detail: str
    replicas: tuple[int, ...] | None = None
    ratio: float | None = None
    phase: Phase | None = None
    of_due: bool = False
    choices: int = 1
    fitted: int = 0
    rounded: Collection[int] = ()
    advice: str = ""
    foretells: bool = True
    beside: Hypothesis | None = None
