"""Sums over examples that take what is due, and another part of their old value.

A step makes κ b + X of an old value b: κ b is the same whatever the examples are, and X
is what these add. Where the old value goes through what joins the replicas, how many
there are gets into what is left of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from distbench.compare.state.led_shards import split_counted
from distbench.diagnose.clues.cases import find_base
from distbench.diagnose.clues.context import Context, Numbered
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.trace.numbers import Array

_SUMMED = "statistics-not-synchronized"
_ADVICE = (
    "Keep the old value out of what is summed: add up what the replicas make of their "
    "own examples (all_reduce), and put that to what is left of the old value, once."
)
_ASSIGNED_ADVICE = (
    "Add up what the replicas make of their own examples (all_reduce), and assign it "
    "with the old value on all alike, with aggregation MEAN or ONLY_FIRST_REPLICA."
)
_POWER_ADVICE = "Let the old value decay once a step, however many replicas there are."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """What becomes of an old value.

    Attributes:
        leave: What is left, of the old value, κ times that, and the replicas.
        code: Finding code.
        detail: What happened; {n} stands for the replicas.
        advice: What to do.
        is_ratio: Whether the replicas are the ratio to tell.
    """

    leave: Callable[[Array, Array, int], Array]
    code: str
    detail: str
    advice: str
    is_ratio: bool = False


def _repeat(base: Array, kept: Array, n: int) -> Array:
    """κ^n b; what comes to 0 stays there."""
    factors = np.divide(kept, base, out=np.zeros_like(kept), where=base != 0)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(base * factors**n)


def _multiply(_base: Array, kept: Array, n: int) -> Array:
    return n * kept


def _take_more(base: Array, kept: Array, n: int) -> Array:
    return base + n * (kept - base)


_ASSIGNED = (
    _Way(
        leave=_multiply,
        code="scale-error",
        detail="it adds up what the replicas assign to it, of each the old value with "
        "what its own examples add: it holds all that they add, and what is left of "
        "the old value {n} times",
        advice=_ASSIGNED_ADVICE,
        is_ratio=True,
    ),
    _Way(
        leave=_take_more,
        code="scale-error",
        detail="it adds up what the replicas add to it, of each what its own examples "
        "add and what the step takes of the old value: it holds all that they add, and "
        "{n} times as much is taken",
        advice=_ASSIGNED_ADVICE,
        is_ratio=True,
    ),
)
"""Of a variable whose aggregation sums."""
_JOINED = (
    _Way(
        leave=_multiply,
        code=_SUMMED,
        detail="it holds all that the examples add, and what is left of its old value "
        "{n} times: each replica has that in what is summed",
        advice=_ADVICE,
    ),
    _Way(
        leave=_take_more,
        code=_SUMMED,
        detail="it holds all that the examples add, and {n} times as much is taken of "
        "its old value: each replica takes that in what is summed",
        advice=_ADVICE,
    ),
)
_ANY = (
    _Way(
        leave=lambda _, kept, n: np.asarray(kept / n),
        code=_SUMMED,
        detail="it holds all that the examples add, and what is left of its old value "
        "is divided by N = {n}",
        advice=_ADVICE,
    ),
    _Way(
        leave=_repeat,
        code="hyperparameter-differs",
        detail="it holds all that the examples add, and of its old value what {n} "
        "steps leave: that decays once for each replica",
        advice=_POWER_ADVICE,
    ),
)


def explain_by_old_values(
    context: Context, cases: Sequence[Numbered], *, adds_up: bool
) -> Iterator[Hypothesis]:
    """What the examples add is right, and the old value counts by the replicas.

    Nothing is fitted: one device tells what is left of it, and what is added.

    Args:
        context: The wrong values.
        cases: Those that no gradient leads.
        adds_up: Whether an aggregation sums what the replicas assign.
    """
    n = context.replicas
    found = {
        number: parts
        for number, case in cases
        if (parts := split_counted(context.evidence, case)) is not None
    }
    if not any(np.any(added) for _, added in found.values()):
        return
    bases = {number: find_base(context.cases[number]) for number in found}
    for way in (*(_ASSIGNED if adds_up else _JOINED), *_ANY):
        yield Hypothesis(
            code=way.code,
            predicted={
                number: way.leave(bases[number], kept, n) + added
                for number, (kept, added) in found.items()
            },
            detail=way.detail.format(n=n),
            ratio=float(n) if way.is_ratio else None,
            advice=way.advice,
        )
