"""What every replica assigns or adds is added up over the replicas."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from distbench.compare.led import has_gradient
from distbench.diagnose.context import Context, Hypothesis


def explain_by_added_copies(context: Context) -> Iterator[Hypothesis]:
    """A variable that no gradient trains, under an aggregation that sums.

    All replicas assign the same value to it, or add the same; what it holds, or what
    the step changes in it, is N times that.
    """
    n = context.replicas
    if context.phase != "variable" or n == 1:
        return
    cases = [
        (number, case)
        for number, case in context.list_cases()
        if not has_gradient(context.evidence, case.key.variable)
    ]

    adds_up = "adds up what the replicas"
    yield Hypothesis(
        code="update-repeated",
        predicted={
            number: np.asarray(case.base + n * (case.expected - case.base))
            for number, case in cases
        },
        detail=f"it {adds_up} add to it, which is {n} times what the step should add",
        ratio=float(n),
    )
    yield Hypothesis(
        code="scale-error",
        predicted={number: n * case.expected for number, case in cases},
        detail=f"it {adds_up} assign to it, and holds {n} times what it should",
        ratio=float(n),
    )
