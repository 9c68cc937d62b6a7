"""Sums that are divided, element by element, by what is made of their addends."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from distbench.compare.arrays.least_squares import solve_least_squares
from distbench.diagnose.clues.addends import Source, list_sources
from distbench.diagnose.clues.cases import find_tolerance
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.hypothesis import NONLINEAR, Hypothesis
from distbench.trace.numbers import Array

_LEAST_NUMBERS = 6
"""Two numbers are fitted to one device's quotients, and the others have to agree."""

_SIZES: tuple[tuple[str, Callable[[Array], Array]], ...] = (
    ("the root of the sum of the squares", lambda g: np.sqrt(np.sum(g**2, axis=0))),
    ("the root of the mean of the squares", lambda g: np.sqrt(np.mean(g**2, axis=0))),
    (
        "the root of N times the sum of the squares",
        lambda g: np.sqrt(len(g) * np.sum(g**2, axis=0)),
    ),
    ("the sum of the absolute values", lambda g: np.sum(np.abs(g), axis=0)),
    ("the mean of the absolute values", lambda g: np.mean(np.abs(g), axis=0)),
    ("the largest absolute value", lambda g: np.max(np.abs(g), axis=0)),
)
"""What may be taken for |S| in each element, of the addends: [addends, ...]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    """How one device divides a sum S: by (a |S|^power + b)^(1 / root).

    Attributes:
        power: The power of |S|, 1 or 2.
        root: The root of the whole, 1 or 2.
        take: a.
        more: b, as an epsilon.
    """

    power: int
    root: int
    take: float
    more: float

    def divide(self, total: Array, size: Array) -> Array:
        """A sum by what is made of a size, 0 where it is 0."""
        below = (self.take * size**self.power + self.more) ** (1 / self.root)
        return np.divide(total, below, out=np.zeros_like(total), where=total != 0)


def explain_by_own_quotient(context: Context) -> Iterator[Hypothesis]:
    """The sum is divided in each element by a size of its addends, and not its own.

    On one device the step makes S / (a |S| + b) of a sum S, or the like with squares or
    below a root, as it shows itself: a and b are fitted to what it made there. With a
    size of the replicas' own gradients in the place of |S| nothing is left to fit.
    """
    if context.phase != "reduced_gradient" or context.replicas == 1:
        return
    sources = list_sources(context)
    for rule in _list_rules(context, sources):
        for words, size in _SIZES:
            yield Hypothesis(
                code=NONLINEAR,
                predicted={
                    s.number: rule.divide(
                        np.sum(s.terms, axis=0), np.asarray(size(np.array(s.terms)))
                    )
                    for s in sources
                },
                detail="the sum is divided, element by element, by its own size on one "
                f"device, and on the cluster taken for that is {words} of the "
                "replicas' own gradients",
            )


def _list_rules(context: Context, sources: Sequence[Source]) -> Iterator[_Rule]:
    """Every way to divide sums that leaves what one device has of all of them."""
    if len(sources) < len(context.cases):
        return
    totals = [np.sum(source.terms, axis=0) for source in sources]
    total = np.concatenate([np.ravel(one) for one in totals])
    made = np.concatenate([np.ravel(source.case.expected) for source in sources])
    told = (total != 0) & (made != 0)
    if np.count_nonzero(told) < _LEAST_NUMBERS or np.any(total[told] * made[told] < 0):
        return
    size, below = np.abs(total[told]), total[told] / made[told]
    for power, root in itertools.product((1, 2), (1, 2)):
        # Each quotient is as exact as its own digits: all count alike.
        target = below**root
        columns = np.stack([size**power, np.ones_like(size)], axis=1)
        weights = solve_least_squares(columns / target[:, None], np.ones_like(target))
        if weights is None or weights[0] <= 0 or weights[1] < 0:
            continue
        rule = _Rule(
            power=power, root=root, take=float(weights[0]), more=float(weights[1])
        )
        if all(
            np.all(
                np.abs(rule.divide(one, np.abs(one)) - source.case.expected)
                <= find_tolerance(source.case, context.replicas)
            )
            for one, source in zip(totals, sources, strict=True)
        ):
            yield rule
