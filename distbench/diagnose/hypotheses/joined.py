"""A sum that is divided by a norm which is made of the norms of its addends."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from distbench.compare.arrays.pair import Pair
from distbench.compare.arrays.ratio import SAME, fit_ratio
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.hypothesis import NONLINEAR, Hypothesis
from distbench.diagnose.clues.shown_sums import find_source, find_start
from distbench.trace import TraceKey
from distbench.trace.numbers import Array, densify, measure_norm, measure_size

_APART = 1.01
"""Norms that are closer than this are one number, and so is what is divided by them."""

_MOST_SINGLE = 8
"""So many replicas' own size may be taken for that of all."""
_SCALED = ("reduced_gradient", "slot", "variable")
"""Phases in which a sum times a number is seen, or a step that is made of one."""

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
    ("sums of absolute values", lambda value: float(np.sum(np.abs(value)))),
)


def explain_by_joined_norm(context: Context) -> Iterator[Hypothesis]:
    """A sum over the replicas is divided by a size that is made of theirs.

    Right is S / (‖S‖ + ε); with a size j of the addends it is S / (j + ε), that is ρ
    times as much with ρ (j + ε) = ‖S‖ + ε. ρ was observed; ε, often 0, is fitted to all
    of them. Sizes that hardly differ would explain any factor, so they have to. Some
    rates, as Polyak's, are divided by the square of a norm.
    """
    ratios = fit_ratios(context)
    if not ratios:
        return
    ways = (*_JOINED, *_list_single(context.replicas))
    for (what, size), of_all in (
        (kind, of_all) for kind in _SIZES for of_all in (True, False)
    ):
        sizes = [_measure(context, context.cases[n], size, of_all) for n in ratios]
        found = [one for one in sizes if one is not None]
        if len(found) < len(ratios):
            continue
        whole = np.array([of_sum for _, of_sum in found])
        of_what = "all gradients" if of_all else "each variable's gradient"
        for (made, join), power in itertools.product(ways, (1, 2)):
            joined = np.array([join(own) for own, _ in found]) ** power
            if not np.all(joined > 0) or joined.max() <= _APART * joined.min():
                continue
            if predicted := divide_by(context, ratios, joined, whole**power):
                by = "" if power == 1 else "the square of "
                yield Hypothesis(
                    code=NONLINEAR,
                    predicted=predicted,
                    detail=f"the sum is divided by {by}the size of {of_what}, or "
                    f"clipped by it, and taken for that is {made} the replicas' own "
                    f"{what}, which is not that of their sum",
                    of_due=True,
                )


def explain_by_joined_length(context: Context) -> Iterator[Hypothesis]:
    """A sum is made as large as a size that is joined of its addends' own.

    As where its signs, or its direction, are scaled by a size of the gradient: that of
    the sum of all, or of what one device makes, where something is added before. So
    nothing is left to fit; but one factor for all would have other causes.
    """
    if context.phase != "reduced_gradient":
        return
    ratios = fit_ratios(context)
    seen = np.array(list(ratios.values()))
    if not ratios or np.ptp(seen) <= (_APART - 1) * seen.max():
        return
    cases = [(number, context.cases[number]) for number in ratios]
    ways = (*_JOINED, *_list_single(context.replicas))
    for what, size in _SIZES:
        found = [_measure(context, case, size, False) for _, case in cases]
        for of_made, (made, join) in itertools.product((False, True), ways):
            predicted = {
                number: case.expected * join(one[0]) / whole
                for (number, case), one in zip(cases, found, strict=True)
                if one
                and (whole := size(_level(case.expected)) if of_made else one[1]) > 0
            }
            yield Hypothesis(
                code=NONLINEAR,
                predicted=predicted,
                detail="what becomes of the sum is scaled by a size of it, and taken "
                f"for that of each variable is {made} the replicas' own {what}, which "
                "is not that of their sum",
                of_due=True,
            )


def _level(made: Array) -> Array:
    """What one device makes; of signs with one size, as if none of them were 0."""
    sizes = np.abs(made)
    largest = measure_size(made)
    is_level = np.all((sizes == 0) | (sizes == largest))
    return np.full(made.shape, largest) if is_level else made


def _list_single(replicas: int) -> Iterator[tuple[str, Join]]:
    for one in range(min(replicas, _MOST_SINGLE)):
        yield f"replica {one}'s of", lambda sizes, r=one: float(sizes[r])  # type: ignore[misc]


def fit_ratios(context: Context) -> Mapping[int, float]:
    """What each value, or its step, is times what is due; empty if some are not.

    Of a momentum only what the step adds to it, and of a variable that follows one what
    goes beyond what would have come without any gradient.
    """
    if context.phase not in _SCALED or context.replicas == 1:
        return {}
    found = {number: _fit_ratio(context, case) for number, case in context.list_cases()}
    known = {number: ratio for number, ratio in found.items() if ratio is not None}
    return known if len(known) == len(found) else {}


def divide_by(
    context: Context,
    ratios: Mapping[int, float],
    taken: Array,
    due: Array,
    *,
    adds: bool = True,
) -> dict[int, Array]:
    """The values, if sums are divided by sizes that are not the due ones.

    Args:
        context: The wrong values.
        ratios: What each is times what is due.
        taken: The size that each is divided by.
        due: The size that each should be divided by.
        adds: Whether some ε may be added to each size.

    Returns:
        Nothing if that does not make these ratios.
    """
    seen, added = np.array(list(ratios.values())), 0.0
    over, rest = seen - 1, due - seen * taken
    if adds and np.any(over):
        # ε (ρ - 1) = ‖S‖ - ρ j, of all at once. What rounding makes of 0 may be less.
        added = max(0.0, float(over @ rest / (over @ over)))
    factors = (due + added) / (taken + added)
    # Any ε that is large enough brings all factors near 1: what is beyond has to fit.
    if np.max(np.abs(factors - seen)) > SAME * np.max(np.abs(over)):
        return {}
    predicted = {}
    for number, factor in zip(ratios, factors, strict=True):
        case = context.cases[number]
        base = find_start(context, case)
        predicted[number] = base + factor * (case.expected - base)
    return predicted


def collect_all(
    context: Context, step: int, variable: str | None
) -> list[dict[TraceKey, Array]]:
    """Each replica's own gradients of a step; empty where some are not known."""
    own = [_collect(context, step, r, variable) for r in range(context.replicas)]
    return own if all(own) and all(one.keys() == own[0].keys() for one in own) else []


def _fit_ratio(context: Context, case: Pair) -> float | None:
    base = find_start(context, case)
    fit = fit_ratio(case.observed - base, case.expected - base)
    if fit is None or fit.ratio <= 0:
        return None
    near = context.matches(case, base + fit.ratio * (case.expected - base))
    return fit.ratio if near else None


def _measure(
    context: Context, case: Pair, size: Callable[[Array], float], of_all: bool
) -> tuple[Array, float] | None:
    """Size of each replica's own gradients, and that of their sum."""
    variable = None if of_all else find_source(context, case)

    def measure() -> tuple[Array, float] | None:
        own = collect_all(context, case.key.step, variable)
        if not own:
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
