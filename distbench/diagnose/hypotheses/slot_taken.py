"""A slot that takes another multiple of what is due, whatever that is made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from distbench.compare.arrays.ratio import SAME, are_same_factors
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.diagnose.hypotheses.slot_facts import (
    fit_due_rule,
    fit_taken,
    group_by_gradient,
    group_by_kind,
)
from distbench.diagnose.hypotheses.slot_rule import name_factor
from distbench.trace.numbers import Array

_FEW = 4
"""Fewer numbers do not show that one factor is that of all."""
_MOVED = 1e-4
"""By such a share do numbers of a schedule differ, and those of a fit do not."""


def explain_by_taken_factor(context: Context) -> Iterator[Hypothesis]:
    """The slot takes c times what is due, whatever its rule makes of the gradients.

    As where a slot takes what another one has accumulated. All numbers of a kind of
    slot must agree, and all kinds on the factor or, where one keeps squares, on that.
    """
    if context.phase != "slot" or context.spares_replicas:
        return
    predicted: dict[int, Array] = {}
    factors: list[float] = []
    for cases in group_by_kind(context):
        sizes = {case.key.at(0): case.expected.size for _, case in cases}
        taken = fit_taken(cases) if sum(sizes.values()) >= _FEW else None
        # Where that is 1, the old value weighs otherwise, not the new.
        if taken is not None and abs(taken[0] - 1) > SAME:
            factors.append(taken[0])
            predicted |= taken[1]
    common = _find_common(factors)
    if common is not None:
        ratio, has_squares = common
        what = "what is due"
        if has_squares:
            what += ", and the square of that where it keeps squares"
        found = name_factor(context, predicted, ratio, "the slot takes", what)
        if found.code == "scale-error" and _is_scheduled(context):
            words = (
                "on one device it takes another multiple of the gradient in each step, "
                "so a schedule is what differs, as of the learning rate"
            )
            detail = f"{found.detail}; {words}"
            found = replace(found, code="hyperparameter-differs", detail=detail)
        yield found


def _find_common(factors: Sequence[float]) -> tuple[float, bool] | None:
    """The factor that all slots take, and whether others take its square."""
    if not factors:
        return None
    ratio = float(np.median(factors))
    if np.ptp(factors) <= SAME * max(abs(ratio), SAME):
        return ratio, False
    for ratio in factors:
        if all(
            are_same_factors(factor, ratio) or are_same_factors(factor, ratio**2)
            for factor in factors
        ):
            return ratio, True
    return None


def _is_scheduled(context: Context) -> bool:
    """Whether one device weighs the gradient otherwise in each step, and nothing else.

    A rule whose numbers are the same in all steps is told by these.
    """
    kinds = [
        context.select(tuple(case for _, case in cases))
        for cases in group_by_kind(context)
    ]
    return any(_moves_weight(kind, power) for kind in kinds for power in (1, 2))


def _moves_weight(context: Context, power: int) -> bool:
    """Whether a kind of slots takes another multiple of gradient^power in each step."""
    taken: list[float] = []
    for pairs in group_by_gradient(context, power, by_step=True):
        due = fit_due_rule(pairs)
        if due is None:
            return False
        taken.append(due.take)
    return bool(taken) and bool(np.ptp(taken) > _MOVED * np.max(np.abs(taken)))
