"""Counts how comparisons of correct runs came out, in memory that does not grow."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from distbench.compare.comparison import Comparison

LOOSE = 1e-3
"""A bound of which never more than this share is used says little."""
_BINS = 100
"""Bins for each factor of 10 of error ÷ bound: a quantile is right to 2.3 %."""


@dataclass(slots=True)
class Tally:
    """Comparisons of one kind.

    Attributes:
        compared: How many there were.
        equal: How many are equal in all bits.
        bitwise: How many had to be: their bound is 0.
        effective: How many could have failed (a lost example and a lost replica are
            both seen).
        hidden: How many could not because of noise.
        unbounded: How many have no finite bound.
        wrong: How many lie outside of their bound.
        largest: Largest error ÷ bound of those that do not.
        bins: How many have which logarithm of error ÷ bound.
    """

    compared: int = 0
    equal: int = 0
    bitwise: int = 0
    effective: int = 0
    hidden: int = 0
    unbounded: int = 0
    wrong: int = 0
    largest: float = 0.0
    bins: Counter[int] = field(default_factory=Counter)

    def add(self, comparison: Comparison) -> None:
        """Count one."""
        c = comparison
        self.compared += 1
        self.equal += c.error == 0
        self.bitwise += c.bound == 0
        self.effective += c.effective
        self.hidden += c.hidden
        self.unbounded += c.bound == math.inf
        self.wrong += c.wrong
        if not c.wrong and c.error_over_bound > 0:
            self.largest = max(self.largest, c.error_over_bound)
            self.bins[math.floor(math.log10(c.error_over_bound) * _BINS)] += 1

    def find_quantile(self, share: float) -> float:
        """The error ÷ bound that this share of the comparisons does not exceed."""
        wanted = math.ceil(share * (self.compared - self.wrong))
        below = self.compared - self.wrong - self.bins.total()
        if wanted <= below:
            return 0.0
        for number in sorted(self.bins):
            below += self.bins[number]
            if wanted <= below:
                return min(self.largest, 10 ** ((number + 1) / _BINS))
        return self.largest

    @property
    def loose(self) -> bool:
        """Whether there is a bound, and it is far from ever being reached."""
        return self.compared > self.bitwise and self.largest < LOOSE

    def to_json(self) -> dict[str, Any]:
        """Counts and quantiles."""
        quantiles = {"median": 0.5, "p90": 0.9, "p99": 0.99}
        return {
            "compared": self.compared,
            "equal": self.equal,
            "bitwise": self.bitwise,
            "effective": self.effective,
            "hidden": self.hidden,
            "unbounded": self.unbounded,
            "wrong": self.wrong,
            **{
                name: _round(self.find_quantile(share))
                for name, share in quantiles.items()
            },
            "largest": _round(self.largest),
            "loose": self.loose,
        }


def limit_rate(events: int, trials: int, confidence: float = 0.95) -> float:
    """Upper limit of a probability, given how often something happened.

    One-sided interval of Clopper and Pearson (Biometrika 26, 1934): the p for which so
    few events have a chance of 1 - confidence. Without any it is nearly 3 / trials.
    """
    if events >= trials:
        return 1.0
    low, high = events / trials, 1.0
    for _ in range(100):
        middle = (low + high) / 2
        if _add_chances(events, trials, middle) > 1 - confidence:
            low = middle
        else:
            high = middle
    return high


def _add_chances(events: int, trials: int, p: float) -> float:
    """P(X ≤ events) of a binomial distribution."""
    if p >= 1:
        return 0.0
    return math.fsum(
        math.exp(
            math.lgamma(trials + 1)
            - math.lgamma(k + 1)
            - math.lgamma(trials - k + 1)
            + (k * math.log(p) if k else 0.0)
            + (trials - k) * math.log1p(-p)
        )
        for k in range(events + 1)
    )


def _round(value: float) -> float:
    return float(f"{value:.3g}")
