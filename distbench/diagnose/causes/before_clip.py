"""Some sums that go wrong before a clip by the norm of all, which bends the others."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from distbench.compare.arrays.pair import Pair
from distbench.compare.arrays.ratio import (
    are_alike,
    are_same_factors,
    fit_common_ratio,
    fit_multiple,
)
from distbench.diagnose.causes.rank import Ranked, find_full
from distbench.diagnose.clues.context import Context, Numbered
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.diagnose.hypotheses.norms import GlobalNorm, list_global_norms
from distbench.diagnose.hypotheses.reduction import (
    explain_by_count,
    explain_by_missing_sum,
    explain_by_subset,
)
from distbench.trace import WHOLE, TraceKey
from distbench.trace.numbers import Array, take_numbers


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Held:
    """What a replica holds after an update's sums, all of them scaled by one number.

    Attributes:
        key: Step, call and replica of them; of any variable.
        factor: By what each is scaled; most of them show it, as sums times a number.
        odd: Those that are something else: their cases as they are without the factor.
    """

    key: TraceKey
    factor: float
    odd: Mapping[int, Pair]


def explain_before_clip(context: Context) -> Iterator[tuple[Context, Ranked]]:
    """What a variable's reduction did wrong, before all were clipped by their norm.

    A norm that a wrong sum enters makes another factor, so that no sum is right any
    more. Most are still sums times that factor. Without it the odd ones are what they
    were before the clip, and there one of the wrong reductions has to leave nothing.

    Yields:
        The wrong values of one variable, and their cause; nothing unless that is known
        of all odd ones.
    """
    if context.phase != "reduced_gradient" or context.replicas == 1:
        return
    held = _list_held(context)
    odd = {number: case for one in held for number, case in one.odd.items()}
    limit = _find_limit(context, held) if odd else None
    if limit is None:
        return
    others = {c.key for n, c in enumerate(context.cases) if n not in odd}
    before = replace(context, cases=tuple(odd.values()), right=context.right | others)
    found: list[tuple[Context, Ranked]] = []
    for part in before.part_by_variable():
        best = find_full(part, _list_reductions(part))
        if best is None:
            return
        cause = best.hypothesis
        words = (
            f"{cause.detail}; then all are scaled to a global norm of at most "
            f"{limit:.6g}, by which the others go wrong with it"
        )
        keys = {case.key for case in part.cases}
        wrong = context.select(tuple(c for c in context.cases if c.key in keys))
        found.append((wrong, replace(best, hypothesis=replace(cause, detail=words))))
    yield from found


def _list_reductions(context: Context) -> Iterator[Hypothesis]:
    return chain(
        explain_by_missing_sum(context),
        explain_by_count(context),
        explain_by_subset(context),
    )


def _list_held(context: Context) -> Sequence[_Held]:
    """What each replica holds where something is wrong; empty if some is not known."""
    groups = context.group_cases(lambda case: replace(case.key, variable=""))
    if sum(map(len, groups.values())) < len(context.cases):
        return ()
    held = []
    for place, cases in groups.items():
        one = _read_held(context, place, cases)
        if one is None:
            return ()
        held.append(one)
    return held


def _read_held(
    context: Context, place: TraceKey, cases: Sequence[Numbered]
) -> _Held | None:
    sums: dict[int, Array] = {}
    for number, case in cases:
        terms = context.find_terms(case)
        if not terms:
            return None
        sums[number] = np.asarray(np.sum(terms, axis=0))
    factors = {
        number: factor
        for number, total in sums.items()
        if (factor := fit_multiple(context.cases[number].observed, total) or 0.0) > 0
    }
    most = _pick_most([*factors.values(), *_list_right(context, place)])
    if most is None:
        return None
    common = [n for n, factor in factors.items() if are_same_factors(factor, most)]
    fit = fit_common_ratio((context.cases[n].observed, sums[n]) for n in common)
    factor = most if fit is None else fit.ratio
    return _Held(
        key=place,
        factor=factor,
        odd={
            number: replace(
                case, observed=case.observed / factor, expected=sums[number]
            )
            for number, case in cases
            if number not in common
        },
    )


def _list_right(context: Context, place: TraceKey) -> Sequence[float]:
    """The factor of each sum of a place that is as it should be: one device's."""
    observed = context.evidence.observed
    count = sum(
        (key.step, key.call, key.replica) == (place.step, place.call, place.replica)
        and (value := observed.get(key)) is not None
        and bool(np.any(take_numbers(value)))
        for key in context.right
    )
    if not count:
        return []
    *_, norm = list_global_norms(context)  # whose rows are added up
    before, after = _measure_due(context, norm, place)
    return [after / before] * count if before and after else []


def _pick_most(factors: Sequence[float]) -> float | None:
    """The factor that most of them are; None where as many are another one."""
    counts = [sum(are_same_factors(f, other) for other in factors) for f in factors]
    most = max(counts, default=0)
    found = [f for f, count in zip(factors, counts, strict=True) if count == most]
    return found[0] if found and are_alike(found) else None


def _find_limit(context: Context, held: Sequence[_Held]) -> float | None:
    """The global norm to which all is scaled, on one device too; None if to none.

    Whatever is larger comes to the same norm, and what is not is left as it is. That
    one norm did so shows nothing: some that differ have to.
    """
    for norm in list_global_norms(context):
        sizes = [_measure_due(context, norm, one.key) for one in held]
        for one in held:
            after = norm.measure(context.evidence.observed, one.key)
            sizes.append((after / one.factor, after))
        limit = max(after for _, after in sizes)
        scaled = [b for b, after in sizes if not are_same_factors(after, b)]
        if (
            math.isfinite(limit)
            and scaled
            and not are_alike(scaled)
            and all(
                are_same_factors(after, before) or are_same_factors(after, limit)
                for before, after in sizes
            )
        ):
            return limit
    return None


def _measure_due(
    context: Context, norm: GlobalNorm, place: TraceKey
) -> tuple[float, float]:
    """Global norm of one device's gradients, before and after what it does to them."""
    reference, whole = context.evidence.reference, place.at(WHOLE)
    before = norm.measure(reference, replace(whole, phase="local_gradient"))
    return before, norm.measure(reference, whole)
