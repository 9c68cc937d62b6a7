"""Sums that are infinite because a narrower dtype has no numbers so large."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from distbench.compare.arrays.bounds import bound_sum, find_roundoff
from distbench.compare.arrays.pair import Pair
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.diagnose.hypotheses.precision import bound_rounding
from distbench.trace import SUMMED

_NARROW = ("float16",)
"""Dtypes with a smaller range than float32; that of bfloat16 is as large."""


def explain_by_narrow_range(context: Context) -> Iterator[Hypothesis]:
    """Inf or NaN in the largest sums alone, and the others are rounded to the dtype.

    How large a sum may be depends on what it is multiplied by on its way, which may be
    another number in each step.
    """
    if context.phase not in SUMMED:
        return
    for dtype in _NARROW:
        steps: dict[int, dict[int, tuple[float, float]]] = {}
        for number, case in enumerate(context.cases):
            parts = _part_by_range(context, case, dtype)
            if parts is not None:
                steps.setdefault(case.key.step, {})[number] = parts
        told = [found for found in steps.values() if _is_one_limit(found.values())]
        if told:
            limit = max(held for held, _ in told[0].values())
            yield Hypothesis(
                code="nonfinite",
                predicted={n: context.cases[n].observed for f in told for n in f},
                detail=f"the largest sums are Inf or NaN, those beyond {limit:.6g}, "
                f"and the others rounded: {dtype} has no room for them on the way",
            )


def _is_one_limit(parts: Collection[tuple[float, float]]) -> bool:
    held, lost = zip(*parts, strict=True)
    return bool(0 < max(held) < min(lost))


def _part_by_range(
    context: Context, case: Pair, dtype: str
) -> tuple[float, float] | None:
    """The largest sum that is finite, and the least that may have been too large.

    None where the overflow of a narrower dtype cannot be the cause. A partial sum may
    be larger than the whole, but never larger than the sum of all absolute values.
    """
    terms = context.find_terms(case)
    finite = np.isfinite(case.observed)
    if not terms or finite.all() or not np.isfinite(case.expected).all():
        return None
    if not find_roundoff(dtype) > find_roundoff(case.dtype) > 0:
        return None
    total = np.asarray(np.sum(terms, axis=0))
    magnitude = np.asarray(np.sum(np.abs(terms), axis=0))
    rounding = bound_rounding(magnitude, len(terms), dtype)
    own = bound_sum(magnitude, len(terms) + 1, find_roundoff(case.dtype))
    off = np.abs(case.observed[finite] - total[finite])
    if np.any(off > rounding[finite]) or (off.size and np.all(off <= own[finite])):
        return None
    held = np.max((np.abs(total) - rounding)[finite], initial=0.0)
    return float(held), float(np.min((magnitude + rounding)[~finite]))
