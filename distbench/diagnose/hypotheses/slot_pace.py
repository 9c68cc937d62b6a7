"""A slot that goes farther, or less far, than on one device in each of its steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from distbench.compare.arrays.ratio import SAME, are_alike
from distbench.diagnose.clues.cases import find_base
from distbench.diagnose.clues.context import Context, Numbered
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.trace.numbers import Array, measure_norm

_FEW = 4
"""Fewer numbers of a step do not show that one factor is that of all."""


def explain_by_pace(context: Context) -> Iterator[Hypothesis]:
    """What a step changes in every slot is the same multiple of what is due in it.

    An average goes from its old value, m, to β m + (1 - β) x: with another β it goes
    (1 - β') / (1 - β) times as far, whatever x is made of. Where β follows a count of
    steps, that is another factor in each step.
    """
    if context.phase != "slot" or context.spares_replicas:
        return
    predicted: dict[int, Array] = {}
    paces: list[float] = []
    for cases in context.list_steps().values():
        pace = _fit_pace(cases)
        if pace is None:
            return
        paces.append(pace)
        for number, case in cases:
            base = find_base(case)
            predicted[number] = base + pace * (case.expected - base)
    if not paces or are_alike([1.0, *paces]):
        return
    told = ", ".join(f"{pace:.6g}" for pace in paces)
    yield Hypothesis(
        code="hyperparameter-differs",
        predicted=predicted,
        detail=f"in a step it goes {told} times as far from its old value as on one "
        "device, whatever it takes: the rule weighs old and new otherwise, as with "
        "another decay",
        ratio=paces[0],
    )


def _fit_pace(cases: Sequence[Numbered]) -> float | None:
    """The factor of one step, of which each slot weighs as much; None of too little."""
    seen: dict[str, tuple[Array, Array]] = {}
    for _, case in cases:
        base = find_base(case)
        due = (case.expected - base).ravel()
        size = measure_norm(due)
        if size == 0 or not np.isfinite(case.observed).all():
            return None
        gone = (case.observed - base).ravel()
        seen.setdefault(case.key.variable, (due / size, gone / size))
    due, gone = (np.concatenate(parts) for parts in zip(*seen.values(), strict=True))
    if due.size < _FEW:
        return None
    pace = float(due @ gone) / float(due @ due)
    return pace if abs(pace) > SAME else None
