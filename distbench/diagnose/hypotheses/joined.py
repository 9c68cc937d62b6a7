"""A sum that is divided by a norm which is made of the norms of its addends."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from distbench.compare.pair import Pair
from distbench.compare.ratio import fit_ratio
from distbench.compare.values import Array, densify, measure_norm, measure_size
from distbench.diagnose.context import Context, Hypothesis, find_base
from distbench.trace import TraceKey

_APART = 1.01
"""Norms that are closer than this are one number, and so is what is divided by them."""
_SAME = 1e-3
"""Share of what factors are beyond 1 by which a fit may miss them."""

Join = Callable[[Array], float]

_JOINED: tuple[tuple[str, Join], ...] = (
    ("the sum of", lambda sizes: float(np.sum(sizes))),
    ("the mean of", lambda sizes: float(np.mean(sizes))),
    (
        "the root of the sum of the squares of",
        lambda sizes: float(np.sqrt(np.sum(sizes**2))),
    ),
    ("the largest of", lambda sizes: float(np.max(sizes))),
)
"""What may be taken for the size of a sum, of those of its addends: [addends]."""
_SIZES: tuple[tuple[str, Callable[[Array], float]], ...] = (
    ("norms", measure_norm),
    ("largest elements", measure_size),
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Scaled:
    """A wrong value that is what is due times a number.

    Attributes:
        number: Number of the case.
        case: The wrong value.
        ratio: The number.
        own: Size of each replica's gradient: [replicas].
        whole: Size of their sum.
    """

    number: int
    case: Pair
    ratio: float
    own: Array
    whole: float


def explain_by_joined_norm(context: Context) -> Iterator[Hypothesis]:
    """A sum over the replicas is divided by a size that is made of theirs.

    Right is S / (‖S‖ + ε); with a size j of the addends it is S / (j + ε), that is ρ
    times as much with ρ (j + ε) = ‖S‖ + ε. ρ was observed; ε, often 0, is fitted to all
    of them. Sizes that hardly differ would explain any factor, so they have to. Some
    rates, as Polyak's, are divided by the square of a norm.
    """
    if context.phase not in ("reduced_gradient", "variable") or context.replicas == 1:
        return
    ratios = {
        number: _fit_ratio(context, case) for number, case in context.list_cases()
    }
    if not ratios or None in ratios.values():
        return
    for (what, size), of_all in (
        (kind, of_all) for kind in _SIZES for of_all in (True, False)
    ):
        scaled = [
            _Scaled(
                number=number,
                case=context.cases[number],
                ratio=ratio,
                own=own,
                whole=whole,
            )
            for number, ratio in ratios.items()
            if ratio is not None
            and (found := _measure(context, context.cases[number], size, of_all))
            for own, whole in (found,)
        ]
        if len(scaled) < len(ratios):
            return
        of_what = "all gradients" if of_all else "each variable's gradient"
        for (made, join), power in itertools.product(_JOINED, (1, 2)):
            predicted = _predict(scaled, join, power)
            if predicted:
                by = "" if power == 1 else "the square of "
                yield Hypothesis(
                    code="nonlinear-before-reduction",
                    predicted=predicted,
                    detail=f"the sum is divided by {by}the size of {of_what}, or "
                    f"clipped by it, and taken for that is {made} the replicas' own "
                    f"{what}, which is not that of their sum",
                    of_due=True,
                )


def _fit_ratio(context: Context, case: Pair) -> float | None:
    """What a value, or its step, is times what is due; None if it is not."""
    base = find_base(case)
    fit = fit_ratio(case.observed - base, case.expected - base)
    if fit is None or fit.ratio <= 0:
        return None
    near = context.matches(case, base + fit.ratio * (case.expected - base))
    return fit.ratio if near else None


def _measure(
    context: Context, case: Pair, size: Callable[[Array], float], of_all: bool
) -> tuple[Array, float] | None:
    """Size of each replica's own gradients, and that of their sum."""
    variable = None if of_all else case.key.variable

    def measure() -> tuple[Array, float] | None:
        own = [
            _collect(context, case.key.step, replica, variable)
            for replica in range(context.replicas)
        ]
        if not all(own) or any(one.keys() != own[0].keys() for one in own):
            return None
        whole = [np.sum([one[key] for one in own], axis=0) for key in own[0]]
        sizes = [_join_sizes(list(one.values()), size) for one in own]
        return np.asarray(sizes), _join_sizes(whole, size)

    return context.work_out(("sizes", case.key.step, variable, size), measure)


def _collect(
    context: Context, step: int, replica: int, variable: str | None
) -> dict[TraceKey, Array]:
    found = context.evidence.observed.select(
        step=step, phase="local_gradient", variable=variable, replica=replica
    )
    return {key.at(0): densify(value) for key, value in found}


def _join_sizes(values: Sequence[Array], size: Callable[[Array], float]) -> float:
    return size(np.array([size(value) for value in values]))


def _predict(scaled: Sequence[_Scaled], join: Join, power: int) -> dict[int, Array]:
    joined = np.array([join(one.own) for one in scaled]) ** power
    if not np.all(joined > 0) or joined.max() <= _APART * joined.min():
        return {}
    whole = np.array([one.whole for one in scaled]) ** power
    ratios = np.array([one.ratio for one in scaled])
    # ε (ρ - 1) = ‖S‖ - ρ j, of all at once. What rounding makes of 0 may be less.
    over, rest = ratios - 1, whole - ratios * joined
    fitted = float(over @ rest / (over @ over)) if np.any(over) else 0.0
    added = max(0.0, fitted)
    factors = (whole + added) / (joined + added)
    # Any ε that is large enough brings all factors near 1: what is beyond has to fit.
    if np.max(np.abs(factors - ratios)) > _SAME * np.max(np.abs(over)):
        return {}
    return _scale(scaled, factors)


def _scale(scaled: Sequence[_Scaled], factors: Array) -> dict[int, Array]:
    predicted = {}
    for one, factor in zip(scaled, factors, strict=True):
        base = find_base(one.case)
        predicted[one.number] = base + factor * (one.case.expected - base)
    return predicted
