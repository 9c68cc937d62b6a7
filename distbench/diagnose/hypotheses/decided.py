"""Steps that some replicas take and others leave out."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from distbench.compare.ratio import SAME, fit_common_ratio
from distbench.compare.values import Array
from distbench.diagnose.context import Context, Hypothesis, take_rows
from distbench.diagnose.names import name_replicas
from distbench.trace import SUMMED


def explain_by_own_decision(context: Context) -> Iterator[Hypothesis]:
    """Of each sum some replicas go on with all, or a multiple of it, others with 0.

    So does who skips a step by what it has itself: a norm, or a loss that is too large.
    It is the same replicas that skip for all variables.
    """
    if context.phase not in SUMMED or context.replicas == 1:
        return
    predicted: dict[int, Array] = {}
    first: tuple[frozenset[int], bool] | None = None
    for step in sorted({case.key.step for case in context.cases}):
        skipping = _find_skipping(context, step)
        if skipping is None:
            continue
        found = _predict(context, step)
        if found and 0 < len(skipping) < context.replicas:
            is_due = any(np.any(context.cases[number].expected) for number in found)
            first = first or (skipping, is_due)
        predicted |= found  # in another step all may decide otherwise than one device
    if first is None:
        return
    skipping, is_due = first
    others = [r for r in range(context.replicas) if r not in skipping]
    one = "which one device takes" if is_due else "as one device does"
    yield Hypothesis(
        code="replicas-diverged",
        predicted=predicted,
        detail=f"the step is left out by {name_replicas(sorted(skipping))}, {one}, and "
        f"not by {name_replicas(others)}: each decides by something of its own, so the "
        "copies go apart",
    )


def _find_skipping(context: Context, step: int) -> frozenset[int] | None:
    """The replicas that go on with 0 for all variables; None where these differ."""
    found: set[frozenset[int]] = set()
    for case in context.cases:
        if case.key.step == step:
            values = context.evidence.observed.get_replicas(case.key)
            held = [take_rows(value, case) for value in values]
            found.add(frozenset(r for r, value in enumerate(held) if not np.any(value)))
            if len(held) < context.replicas:
                return None
    (skipping, *more) = found
    return None if more else skipping


def _predict(context: Context, step: int) -> dict[int, Array]:
    """0, or what all replicas add up to, but for a factor that all sums have."""
    sums = {
        number: np.asarray(np.sum(terms, axis=0))
        for number, case in context.list_cases()
        if case.key.step == step and (terms := context.find_terms(case))
    }
    pairs = [
        (held, total)
        for number, total in sums.items()
        for value in context.evidence.observed.get_replicas(context.cases[number].key)
        for held in [take_rows(value, context.cases[number])]
        if np.any(held)
    ]
    fit = fit_common_ratio(pairs)
    if fit is None or fit.residual_share > SAME or fit.ratio <= 0:
        return {}
    seen = {number: context.cases[number].observed for number in sums}
    return {
        number: fit.ratio * sums[number] if np.any(value) else np.zeros_like(value)
        for number, value in seen.items()
    }
