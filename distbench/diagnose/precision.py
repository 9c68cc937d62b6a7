"""A narrower dtype on the way: a warning, and the run passes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from distbench.compare.bounds import bound_sum, find_roundoff
from distbench.compare.pairs import Pair
from distbench.compare.values import Array, measure_size, round_to
from distbench.diagnose.context import Context, Hypothesis
from distbench.trace import WHOLE, SparseRows, Trace

_SMALLEST = {"float16": 2.0**-24, "bfloat16": 2.0**-133}


def explain_by_rounding(context: Context) -> Iterator[Hypothesis]:
    """Values that were rounded to float16 or bfloat16 before, after or in the sum.

    Proved by the bits, not by the size of the error: either every value is one of the
    narrow dtype's numbers, where the expected values are not and the error is within
    that dtype's own bound; or it is just the sum of the rounded addends.
    """
    if context.phase == "iterations":
        return
    for dtype in ("float16", "bfloat16"):
        u = find_roundoff(dtype)
        predicted: dict[int, Array] = {}
        for number, case in context.list_cases():
            if u > find_roundoff(case.dtype) > 0:
                value = _explain_case(context, case, dtype, u)
                if value is not None:
                    predicted[number] = value
        if predicted:
            yield Hypothesis(
                code="lower-precision",
                predicted=predicted,
                detail=f"the values were rounded to {dtype} on the way",
            )


def _explain_case(context: Context, case: Pair, dtype: str, u: float) -> Array | None:
    terms = context.find_terms(case)
    gradients = case.key.phase in ("reduced_gradient", "applied_gradient")
    addends = terms if gradients and terms else (case.expected,)
    sums = np.asarray(sum(round_to(term, dtype) for term in addends))
    if np.array_equal(round_to(sums, case.dtype), case.observed):
        return case.observed
    small = len(addends) * _SMALLEST[dtype]
    magnitude = np.asarray(sum(np.abs(term) for term in addends))
    if case.rows is not None:
        # The slices of a row may cancel; the largest of them all is their limit.
        slices = _find_raw(context.evidence.observed, case)
        largest = 0.0 if slices is None else measure_size(slices)
        magnitude = np.full_like(magnitude, max(largest, measure_size(magnitude)))
    # Each addend is rounded once before and each partial sum once after.
    bound = bound_sum(magnitude, len(addends) + 1, u) + small
    bound = bound + np.where(np.isfinite(case.margin.bound), case.margin.bound, 0.0)
    within = bool(np.all(np.abs(case.observed - case.expected) <= bound))
    if not within:
        return None
    seen = _find_raw(context.evidence.observed, case)
    wanted = _find_raw(context.evidence.reference, case)
    if wanted is None or case.rows is None:
        wanted = case.expected
    if (
        seen is not None
        and is_representable(seen, dtype)
        and not is_representable(wanted, dtype)
    ):
        return case.observed
    return sums


def _find_raw(trace: Trace, case: Pair) -> Array | None:
    """The numbers as they were recorded: of a sparse value its slices."""
    for replica in (case.key.replica, WHOLE):
        value = trace.get(replace(case.key, replica=replica))
        if value is not None:
            slices = value.values if isinstance(value, SparseRows) else value
            return np.asarray(slices, np.float64)
    return None


def is_representable(values: Array, dtype: str) -> bool:
    """Whether all values are numbers of a narrow dtype, and enough to be no chance."""
    found = values[values != 0]
    return found.size >= 2 and bool(np.array_equal(round_to(found, dtype), found))
