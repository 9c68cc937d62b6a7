"""A narrower dtype on the way: a warning, and the run passes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from distbench.compare.bounds import bound_sum, find_roundoff
from distbench.compare.pair import Pair
from distbench.compare.values import Array, measure_size, round_to, take_numbers
from distbench.diagnose.context import Context, Hypothesis
from distbench.trace import SUMMED, WHOLE, Trace, TraceKey

_SMALLEST = {"float16": 2.0**-24, "bfloat16": 2.0**-133, "float32": 2.0**-149}
"""The narrow dtypes with their smallest numbers."""
_ENOUGH_BITS = 20
"""Zeros at the end of numbers, in bits, that are no chance: one in a million."""


def explain_by_rounding(context: Context) -> Iterator[Hypothesis]:
    """Values that were rounded to a narrower dtype before, after or in the sum.

    Proved by the bits, not by the size of the error: either every value is one of the
    narrow dtype's numbers, where the expected values are not and the error is within
    that dtype's own bound; or it is just the sum of the rounded addends.
    """
    if context.phase == "iterations":
        return
    for dtype in _SMALLEST:
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
    gradients = case.key.phase in SUMMED
    terms = context.find_terms(case) if gradients else ()
    addends = terms or (case.expected,)
    rounded = np.asarray(sum(round_to(term, dtype) for term in addends))
    if np.array_equal(round_to(rounded, case.dtype), case.observed):
        return case.observed
    magnitude = np.asarray(sum(np.abs(term) for term in addends))
    seen = _find_raw(context.evidence.observed, (case.key,))
    if case.rows is not None and seen is not None:
        # The slices of a row may cancel; the largest of them all is their limit.
        largest = max(measure_size(seen), measure_size(magnitude))
        magnitude = np.full_like(magnitude, largest)
    # Each addend is rounded once before and each partial sum once after.
    bound = bound_sum(magnitude, len(addends) + 1, u)
    bound = bound + len(addends) * _SMALLEST[dtype]
    bound = bound + np.where(np.isfinite(case.margin.bound), case.margin.bound, 0.0)
    total = np.asarray(sum(addends))
    if np.any(np.abs(case.observed - total) > bound):
        return None
    # One device may round its own sum as well, so what tells is what went in.
    if terms:
        keys = [
            replace(case.key, phase="local_gradient", replica=replica)
            for replica in range(context.replicas)
        ]
        sources = _find_raw(context.evidence.observed, keys)
    else:
        keys = [case.key, replace(case.key, replica=WHOLE)]
        sources = _find_raw(context.evidence.reference, keys[:1])
        if sources is None:
            sources = _find_raw(context.evidence.reference, keys[1:])
    given = total if sources is None else sources
    # Numbers of a grid have zeros without being rounded, and so has what is right.
    spare = np.log2(u / find_roundoff(case.dtype))
    spare = -np.log2(max(_count_share(given, dtype), 2.0**-spare))
    if (
        seen is not None
        and is_representable(seen, dtype, spare)
        and not is_representable(given, dtype, spare)
    ):
        return case.observed
    return rounded


def _find_raw(trace: Trace, keys: Sequence[TraceKey]) -> Array | None:
    """The numbers as they were recorded, of sparse values their slices."""
    found = [value for key in keys if (value := trace.get(key)) is not None]
    return np.concatenate([take_numbers(v).ravel() for v in found]) if found else None


def _count_share(values: Array, dtype: str) -> float:
    """Which share of the numbers besides 0 are those of a narrow dtype as they are."""
    found = values[values != 0]
    return float(np.mean(round_to(found, dtype) == found)) if found.size else 0.0


def is_representable(values: Array, dtype: str, spare: float) -> bool:
    """Whether all values are numbers of a narrow dtype, and that is no chance.

    Args:
        values: Numbers of a wider dtype.
        dtype: The narrow one.
        spare: How many bits are zeros in each number: by so many it is narrower, if
            other numbers have no such zeros.
    """
    found = values[values != 0]
    is_chance = found.size * spare < _ENOUGH_BITS
    return not is_chance and bool(np.array_equal(round_to(found, dtype), found))
