"""A slot whose rule adds another constant than on one device."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from distbench.compare.arrays.ratio import SAME
from distbench.diagnose.clues.cases import find_base
from distbench.diagnose.clues.context import Context, Numbered
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.diagnose.hypotheses.slot_facts import group_by_kind
from distbench.trace.numbers import Array

_FEW = 4
"""Fewer numbers do not show that one constant is that of all."""


def explain_by_constant(context: Context) -> Iterator[Hypothesis]:
    """Every element of a kind of slots is off by one constant, in each step.

    As of a rule that adds a small number to what it keeps, so that nobody divides by 0.
    What is the same in all elements of what is due is as well a multiple of it.
    """
    if context.phase != "slot" or context.spares_replicas:
        return
    predicted: dict[int, Array] = {}
    added: list[float] = []
    for cases in group_by_kind(context):
        constant = _fit_constant(cases)
        if constant is not None:
            added.append(constant)
            predicted |= {n: case.expected + constant for n, case in cases}
    if not added:
        return
    told = " or ".join(f"{constant:+.6g}" for constant in dict.fromkeys(added))
    yield Hypothesis(
        code="hyperparameter-differs",
        predicted=predicted,
        detail=f"in each step all of its elements are off by the same {told}, whatever "
        "the gradients are: the rule adds another constant, as an epsilon",
    )


def _fit_constant(cases: list[Numbered]) -> float | None:
    """What all elements are off by; None where that is not one number."""
    seen = {case.key.at(0): case for _, case in cases}.values()
    errors = np.concatenate([(c.observed - c.expected).ravel() for c in seen])
    due = np.concatenate([(c.expected - find_base(c)).ravel() for c in seen])
    constant = float(np.mean(errors)) if errors.size >= _FEW else 0.0
    size = float(np.max(np.abs(due), initial=0.0))
    if constant == 0 or np.ptp(due) <= SAME * size:
        return None
    rest = np.abs(errors - constant)
    return constant if bool(np.all(rest <= SAME * abs(constant))) else None
