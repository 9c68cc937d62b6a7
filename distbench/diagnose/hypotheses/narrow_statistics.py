"""Statistics of which what the examples add was rounded to a narrow dtype."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np

from distbench.compare.arrays.bounds import find_roundoff
from distbench.compare.arrays.pair import Pair
from distbench.compare.state.led_shards import list_counted
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.diagnose.hypotheses.narrow_scales import SMALLEST
from distbench.diagnose.hypotheses.narrow_sums import Sum, is_narrow, join_sums
from distbench.diagnose.hypotheses.precision import bound_rounding
from distbench.trace.numbers import Array

_OPERATIONS = 2
"""Roundings of a number and of what is added to it: what is kept of the old value is
known from two runs. For each some more are allowed anyway."""
_FINER = 64
"""By so much more than a narrow number what is added has to be known."""


def explain_by_narrow_sums(
    context: Context, statistics: Collection[int]
) -> Iterator[Hypothesis]:
    """What the examples add is a sum of narrow numbers, times one number in all steps.

    Of state that keeps a part of its old value that is what is left without it. Proved
    by the bits, as of gradients; see `precision.explain_by_rounding`.

    Args:
        context: The wrong values.
        statistics: Numbers of those that the examples lead.
    """
    for dtype in SMALLEST:
        narrow = [
            number
            for cases in context.group_cases(lambda case: case.key.variable).values()
            for number in _list_narrow(
                context, dict(c for c in cases if c[0] in statistics), dtype
            )
        ]
        if narrow:
            yield Hypothesis(
                code="lower-precision",
                predicted={i: context.cases[i].observed for i in narrow},
                detail=f"what the examples add to it was rounded to {dtype} on the way",
            )


def _list_narrow(context: Context, cases: dict[int, Pair], dtype: str) -> Sequence[int]:
    """The numbers of a variable's wrong values if all of them are such."""
    apart = {case.key.at(0): case for case in cases.values()}
    found = [_take_added(context, case, dtype) for case in apart.values()]
    sums = [one for one in found if one is not None]
    if not sums or len(sums) < len(found):
        return ()
    made, own = join_sums([made for made, _ in sums]), max(own for _, own in sums)
    is_alike = all(
        np.array_equal(case.observed, apart[case.key.at(0)].observed)
        for case in cases.values()
    )
    return tuple(cases) if is_alike and is_narrow(made, dtype, own) else ()


def _take_added(context: Context, case: Pair, dtype: str) -> tuple[Sum, float] | None:
    """What the examples of all replicas add, and its unit roundoff.

    Where the old value is far larger it hides the digits of what is added: these
    numbers are left out. None where rounding does not explain them all.
    """
    u, own = find_roundoff(dtype), find_roundoff(case.dtype)
    parts = list_counted(context.evidence, case) if u > own > 0 else None
    if parts is None:
        return None
    kept, counts = parts
    magnitude = np.asarray(np.sum(np.abs(counts), axis=0))
    rounded = _OPERATIONS * own * (np.abs(kept) + magnitude)
    bound = bound_rounding(magnitude, len(counts), dtype) + rounded
    if np.any(np.abs(case.observed - case.expected) > bound):
        return None
    added = np.asarray(case.observed - kept)
    is_known = _FINER * rounded <= u * np.abs(added)
    if not np.any(is_known):
        return None
    known = [np.asarray(count)[is_known] for count in counts]
    return (added[is_known], known), _find_relative(rounded, added, is_known)


def _find_relative(rounded: Array, added: Array, is_known: Array) -> float:
    return float(np.max(rounded[is_known] / np.abs(added[is_known])))
