"""Sums over examples that take what is due, and another part of their old value.

A step makes κ b + X of an old value b: κ b is the same whatever the examples are, and X
is what these add. Where the old value goes through what joins the replicas, how many
there are gets into what is left of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
_KEPT_ADVICE = "Have the step change the old value on the cluster as on one device."
_OR = "; or, which comes to the same here, "


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """What becomes of an old value.

    Attributes:
        leave: What is left, of the old value, κ times that, and the replicas.
        code: Finding code.
        detail: What it holds beside what the examples add; {n} stands for the replicas.
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
        detail="what is left of the old value {n} times: it adds up what the replicas "
        "assign to it, of each the old value with what its own examples add",
        advice=_ASSIGNED_ADVICE,
        is_ratio=True,
    ),
    _Way(
        leave=_take_more,
        code="scale-error",
        detail="{n} times as much is taken of the old value: it adds up what the "
        "replicas add to it, of each what its own examples add and what the step takes "
        "of the old value",
        advice=_ASSIGNED_ADVICE,
        is_ratio=True,
    ),
)
"""Of a variable whose aggregation sums."""
_JOINED = (
    _Way(
        leave=_multiply,
        code=_SUMMED,
        detail="what is left of its old value {n} times: each replica has that in what "
        "is summed",
        advice=_ADVICE,
    ),
    _Way(
        leave=_take_more,
        code=_SUMMED,
        detail="{n} times as much is taken of its old value: each replica takes that "
        "in what is summed",
        advice=_ADVICE,
    ),
)
_ANY = (
    _Way(
        leave=lambda _, kept, n: np.asarray(kept / n),
        code=_SUMMED,
        detail="what is left of its old value is divided by N = {n}",
        advice=_ADVICE,
    ),
    _Way(
        leave=_repeat,
        code="hyperparameter-differs",
        detail="of its old value what {n} steps leave: that decays once for each "
        "replica",
        advice=_POWER_ADVICE,
    ),
    _Way(
        leave=lambda base, _, __: base,
        code="hyperparameter-differs",
        detail="all of its old value, which one device changes",
        advice=_KEPT_ADVICE,
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
    ways = (*(_ASSIGNED if adds_up else _JOINED), *_ANY)
    left = [
        {
            number: way.leave(bases[number], kept, n)
            for number, (kept, _) in found.items()
        }
        for way in ways
    ]
    for first, alike in _group_alike(context, left).items():
        told = [ways[place] for place in alike]
        details = _OR.join(way.detail.format(n=n) for way in told)
        yield Hypothesis(
            code=told[0].code,
            predicted={
                number: left[first][number] + added
                for number, (_, added) in found.items()
            },
            detail=f"it holds all that the examples add, and {details}",
            ratio=float(n) if told[0].is_ratio else None,
            advice=" Or: ".join(dict.fromkeys(way.advice for way in told)),
        )


def _group_alike(
    context: Context, left: Sequence[Mapping[int, Array]]
) -> dict[int, list[int]]:
    """Which ways leave the same of all old values, by the first of them.

    Of what is left half of the old value, an N-th for N = 2 is what two steps leave.
    """
    groups: dict[int, list[int]] = {}
    for place, values in enumerate(left):
        alike = (
            first
            for first in groups
            if all(
                context.are_near(context.cases[number], left[first][number], value)
                for number, value in values.items()
            )
        )
        groups.setdefault(next(alike, place), []).append(place)
    return groups
