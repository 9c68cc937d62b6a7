"""Sums whose addends were multiplied, rounded to a narrow dtype, and divided after."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from distbench.compare.arrays.bounds import find_roundoff
from distbench.compare.arrays.pair import Pair
from distbench.compare.arrays.ratio import fit_ratio
from distbench.diagnose.clues.context import Context
from distbench.diagnose.hypotheses.narrow_scales import (
    ENOUGH_BITS,
    count_bits,
    find_scale,
    is_scale_told,
)
from distbench.trace.numbers import Array

Sum = tuple[Array, Sequence[Array]]
"""What was observed, and the addends."""


def find_scaled(context: Context, case: Pair, dtype: str) -> Sum | None:
    """A wrong value with the addends of which it is the narrow sum under a scale.

    One device may scale each by another number, as one that its own largest gradient
    gives, so what it makes of a gradient is no addend then.
    """
    if not isinstance(context.evidence.observed.get(case.key), np.ndarray):
        return None  # slices are rounded each by itself
    own = find_roundoff(case.dtype)
    for terms in (
        context.find_terms(case),
        context.find_terms_of(case, case.key.variable),
    ):
        made = case.observed, terms
        is_known = len(terms) == context.replicas > 1
        if is_known and _find_scale(made, dtype, own) is not None:
            return made
    return None


def tell_scaled(
    context: Context, scaled: Sequence[tuple[Pair, Sum]], dtype: str
) -> bool:
    """Whether it is no chance that values are such sums.

    Each has a scale of its own, or all have the same. A sum that nothing is wrong with
    tells as much: that the program rounds.

    Args:
        context: The wrong values.
        scaled: Those that are such sums; see `find_scaled`.
        dtype: The narrow dtype.
    """
    if not scaled:
        return False
    own = find_roundoff(scaled[0][0].dtype)
    # What replicas have alike tells once.
    apart = list({case.key.at(0): made for case, made in scaled}.values())
    sums = [*apart, join_sums(apart), *_list_right(context, own)]
    return any(is_narrow(made, dtype, own) for made in sums)


def is_narrow(made: Sum, dtype: str, own: float) -> bool:
    """Whether something is a narrow sum under some scale, and that is no chance.

    Args:
        made: A sum and its addends.
        dtype: The narrow dtype.
        own: Unit roundoff of the sum.
    """
    if count_bits(made[0], dtype, own) < ENOUGH_BITS:
        return False  # no scale could tell, and of few numbers many would do
    scale = _find_scale(made, dtype, own)
    return scale is not None and is_scale_told(scale, *made, dtype, own)


def _find_scale(made: Sum, dtype: str, own: float) -> float | None:
    """The scale of a sum, unless it is the plain one times a number.

    Where that has few digits, some scale gives few to any multiple of it.
    """
    observed, terms = made
    total = np.asarray(np.sum(terms, axis=0))
    off = len(terms) * own * np.asarray(np.sum(np.abs(terms), axis=0))
    fit = fit_ratio(observed, total)
    factor = 1.0 if fit is None or np.count_nonzero(total) < 2 else fit.ratio
    is_plain = np.all(np.abs(observed - total) <= off)
    if not is_plain and np.all(np.abs(observed - factor * total) <= 2 * off):
        return None
    return find_scale(observed, terms, dtype, own)


def join_sums(sums: Sequence[Sum]) -> Sum:
    """Several sums as one, each with as many addends."""
    observed = np.concatenate([total.ravel() for total, _ in sums])
    terms = zip(*(addends for _, addends in sums), strict=True)
    return observed, [np.concatenate([t.ravel() for t in parts]) for parts in terms]


def _list_right(context: Context, own: float) -> Iterator[Sum]:
    """The sums of this phase that are as they should be, where they are dense.

    Those of a narrow variable are narrow whatever the program does.
    """
    trace = context.evidence.observed
    for key in sorted({key.at(0) for key in context.right}):
        info = context.infos.get(key.variable)
        if info is None or find_roundoff(info.dtype) != own:
            continue
        addends = trace.get_replicas(replace(key, phase="local_gradient"))
        values = [trace.get(key), *addends]
        if len(addends) > 1 and all(isinstance(v, np.ndarray) for v in values):
            observed, *terms = (np.asarray(v, np.float64) for v in values)
            yield observed, terms
