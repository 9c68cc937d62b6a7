"""Sums that a program makes by hand, told by the state that they lead to on one device.

Whatever the rule is that takes them: one device was fed with each of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np

from distbench.compare.values import Array
from distbench.diagnose.context import Context, Hypothesis, find_tolerance, take_rows
from distbench.diagnose.names import name_replicas
from distbench.trace import Trace


def explain_by_sum(context: Context) -> Iterator[Hypothesis]:
    """The state that follows from another sum than that of all gradients.

    One in a narrow dtype is told where the state has all digits that follow from it:
    it has far more than the sum has, so none fits by chance. What slots take, the
    variable does.
    """
    if context.phase not in ("slot", "variable"):
        return
    n, apart = context.replicas, context.evidence.apart
    if context.evidence.sums and apart is not None:
        yield Hypothesis(
            code="missing-reduction",
            predicted=_take(context, apart),
            detail="it is what one device makes of each replica's own gradient",
            phase="variable",
        )
    for trace in context.evidence.sums:
        predicted = _take(context, trace, replica=0)
        kept = cast(Sequence[int], trace.notes["kept"])
        factor = float(cast(float, trace.notes["factor"]))
        lost = tuple(r for r in range(n) if r not in kept)
        if narrow := trace.notes["narrow"]:
            code, words = "lower-precision", f"a sum of the gradients in {narrow}"
            predicted = {i: v for i, v in predicted.items() if _fits(context, i, v)}
        elif lost:
            code = "replica-dropped"
            words = f"a sum that lacks the gradient of {name_replicas(lost)}"
        elif factor < 1:
            code, words = "mean-instead-of-sum", f"the sum divided by N = {n}"
        else:
            code, words = "double-reduction", f"the sum times N = {n}"
        yield Hypothesis(
            code=code,
            predicted=predicted,
            detail=f"it is what one device makes of {words}",
            phase="variable",
            replicas=lost or None,
            ratio=None if factor == 1 else factor,
        )


def _take(
    context: Context, trace: Trace, replica: int | None = None
) -> dict[int, Array]:
    """The state that a trace has: of each replica, or of one for all."""
    return {
        number: take_rows(value, case)
        for number, case in context.list_cases()
        if (value := trace.get(case.key if replica is None else case.key.at(replica)))
        is not None
    }


def _fits(context: Context, number: int, value: Array) -> bool:
    """Whether what is left is no more than the rounding of the state itself."""
    case = context.cases[number]
    rest = np.abs(case.observed - value)
    return bool(np.all(rest <= find_tolerance(case, context.replicas)))
