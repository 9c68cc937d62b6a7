"""A reduced gradient against the sum of what went in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from distbench.compare.arrays.addends import Addends, Widened, collect_addends
from distbench.compare.arrays.aligned import Aligned, align_value, join_rows
from distbench.compare.arrays.bounds import find_roundoff
from distbench.compare.arrays.copies import are_copies, have_equal_rows
from distbench.compare.arrays.measure import BITWISE, Margin, measure_error
from distbench.compare.arrays.pair import DIRECTION, SUM, Pair
from distbench.compare.arrays.ratio import SAME, fit_ratio
from distbench.compare.nature.factor import Factor
from distbench.compare.pairs.overflow import let_overflow
from distbench.compare.pairs.sums import bound_reduction
from distbench.compare.pairs.underflow import bound_lost
from distbench.dyadic import is_power_of_two
from distbench.trace import TraceKey, Value
from distbench.trace.numbers import Array, measure_norm


def pair_sum(
    key: TraceKey,
    value: Value,
    parts: tuple[Value, ...],
    factor: Factor,
    dtype: str,
    known: tuple[Value, Pair] | None,
    *,
    exact: bool,
) -> Pair:
    """The sum times a known factor.

    That is the same for all replicas which hold the same rows, so that it is taken from
    what is known of another replica, unless something overflows.

    Args:
        key: Where the reduced gradient was observed.
        value: The reduced gradient.
        parts: What each replica handed over.
        factor: What one device multiplies the sum by.
        dtype: The dtype in which it was added up.
        known: The value of another replica, and its pair.
        exact: Whether no sum of dyadic numbers may round.
    """
    if known is not None and are_copies((value,), known[:1]):
        return replace(known[1], key=key)
    rows = join_rows((value, *parts))
    seen = align_value(value, rows)
    find_addends = partial(collect_addends, parts, rows, factor.value)
    if (
        known is not None
        and known[1].dtype == dtype
        and np.isfinite(known[1].expected).all()
        and have_equal_rows(rows, known[1].rows)
    ):
        pair = replace(known[1], key=key, observed=seen.total, tested=[])
        return let_overflow(pair, find_addends, factor.value)
    addends = find_addends()
    expected = addends.add_up()
    more = max(factor.roundings, count_mean_roundings(len(parts)))
    margin = BITWISE
    if more or not exact:
        is_scaled = factor.roundings > 0 or factor.value != 1
        lost = partial(bound_lost, addends, expected, dtype, scaled=is_scaled)
        u = find_roundoff(dtype)
        margin = bound_reduction(addends, expected, u, more=more, find_lost=lost)
        margin = _widen(margin, expected, factor.spread)
    pair = _make_pair(key, SUM, seen, addends, expected, margin, dtype)
    return let_overflow(pair, lambda: addends, factor.value)


def pair_direction(
    key: TraceKey, value: Value, parts: tuple[Value, ...], dtype: str, sign: float
) -> Iterator[Pair]:
    """The sum times the factor that fits best; nothing for a single number.

    One number is a multiple of any other, so it would say nothing.

    Args:
        key: Where the reduced gradient was observed.
        value: The reduced gradient.
        parts: What each replica handed over.
        dtype: The dtype in which it was added up.
        sign: That of the number.
    """
    rows = join_rows((value, *parts))
    seen = align_value(value, rows)
    total = collect_addends(parts, rows, 1.0).add_up()
    fit = fit_ratio(seen.total, total)
    if fit is None or total.size == 1:
        return
    factor = fit.ratio
    if factor * sign <= 0:
        factor = sign * measure_norm(seen.total) / measure_norm(total)
    addends = collect_addends(parts, rows, factor)
    expected = addends.add_up()
    more = max(2, count_mean_roundings(len(parts)))
    lost = partial(bound_lost, addends, expected, dtype, scaled=True)
    u = find_roundoff(dtype)
    margin = bound_reduction(addends, expected, u, more=more, find_lost=lost)
    bound = np.broadcast_to(margin.bound, expected.shape)
    # The errors of all elements move the number that fits them.
    square = float(np.sum(expected**2))
    moved = float(np.sum(np.abs(expected) * bound)) / square if square else 0.0
    margin = Margin(bound=bound + moved * np.abs(expected))
    yield _make_pair(key, DIRECTION, seen, addends, expected, margin, dtype)


def is_clipped(pair: Pair) -> bool:
    """Whether a sum that is not as it should be is less of it than any count leaves.

    As after a clip, whose factor is no quotient of small numbers but by chance.
    """
    if not measure_error(pair.observed, pair.expected, pair.margin).wrong:
        return False
    fit = fit_ratio(pair.observed, pair.expected)
    if fit is None or not 0 < fit.ratio < 1 or fit.residual_share > SAME:
        return False
    if pair.observed.size == 1:
        return False  # of which any number is a multiple
    counts = (fit.ratio * n for n in range(1, len(pair.terms) + 1))
    return all(round(count) < 1 or abs(count - round(count)) > SAME for count in counts)


def count_mean_roundings(replicas: int) -> int:
    """How many roundings an average over N replicas with equal values has.

    A program may take the mean and add up N equal means to get the sum: unless N is a
    power of two, 1/N is rounded, so is the product with it, and so are N - 1 further
    additions.
    """
    return 0 if is_power_of_two(replicas) else replicas + 1


def _widen(margin: Margin, expected: Array, spread: float) -> Margin:
    """For a factor that is known up to some part of it."""
    if not spread:
        return margin
    return Margin(
        bound=margin.bound + spread * np.abs(expected),
        ratio=margin.ratio + spread,
        total=margin.total + spread * abs(float(np.sum(expected))),
    )


def _make_pair(
    key: TraceKey,
    against: str,
    seen: Aligned,
    addends: Addends,
    expected: Array,
    margin: Margin,
    dtype: str,
) -> Pair:
    return Pair(
        key=key,
        relation="follows",
        against=against,
        observed=seen.total,
        expected=expected,
        margin=margin,
        dtype=dtype,
        terms=Widened(addends.totals),
        rows=seen.places,
    )
