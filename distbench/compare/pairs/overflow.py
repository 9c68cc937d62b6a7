"""Sums of numbers that have room in their dtype, and that have none themselves."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import ml_dtypes
import numpy as np

from distbench.compare.arrays.addends import Addends
from distbench.compare.arrays.bounds import find_roundoff
from distbench.compare.arrays.pair import Pair
from distbench.trace import COMPUTED, INITIAL, STATE, WHOLE, Trace
from distbench.trace.dtypes import find_digits, find_dtype
from distbench.trace.numbers import densify, round_to


def let_overflow(
    pair: Pair, find_addends: Callable[[], Addends], factor: float
) -> Pair:
    """A sum in which Inf is expected where it was observed, and may have come to be.

    Which of finite addends are added first decides whether a part of their sum has no
    room. It has at most what all addends of one sign make up; where those of both have
    no room, Inf may have met -Inf, which is NaN. Each slice of a row is an addend.

    Args:
        pair: A sum, in float64, and one that was added up in `pair.dtype`.
        find_addends: What is added up, asked for where something overflowed.
        factor: What they were multiplied by, before they are summed or after.
    """
    places = ~np.isfinite(pair.observed) & np.isfinite(pair.expected)
    if find_digits(pair.dtype) is None or not places.any():
        return pair
    addends = find_addends()
    most = float(ml_dtypes.finfo(find_dtype(pair.dtype)).max)  # type: ignore[no-untyped-call]
    # A product is rounded, and what is divided after the sum is larger before.
    rounded = 1 + 2 * np.max(addends.count()) * find_roundoff(pair.dtype)
    slack = rounded * max(1.0, 1 / abs(factor)) if factor else rounded
    size, total = addends.measure()[places], pair.expected[places]
    above, below = (slack * (size + sign * total) / 2 >= most for sign in (1, -1))
    seen = pair.observed[places]
    either = above | below if _has_no_infinity(pair.dtype) else above & below
    may = np.where(np.isnan(seen), either, np.where(seen > 0, above, below))
    expected = pair.expected.copy()
    expected[places] = np.where(may, seen, expected[places])
    return replace(pair, expected=expected, tested=[])


def let_leave_out(pair: Pair, *, overflows: bool, is_known: bool) -> Pair:
    """A sum in a step that one side leaves out; see `Measure.parted`.

    One that is not finite may be so, or 0 anywhere, and any other has to be finite.

    Args:
        pair: A sum, and what of it was handed on.
        overflows: Whether some addend of the step is not finite.
        is_known: Whether more is known of the sum than whether it is finite.
    """
    finite, seen = np.isfinite(pair.expected), np.isfinite(pair.observed)
    if finite.shape != seen.shape:
        return pair
    left = np.zeros_like(seen)
    if overflows:
        nothing = ~seen | (pair.observed == 0)
        left = nothing if nothing[~finite].all() else nothing & ~finite
    if not is_known:
        left = left | (finite & seen)
    expected = np.where(left, pair.observed, pair.expected)
    return replace(pair, expected=expected, tested=[])


def leave_infinite(pair: Pair, reference: Trace, *, overflows: bool = False) -> Pair:
    """What one device makes of the global batch, where that is no number.

    Which of Inf, -Inf and NaN comes of large numbers depends on the order in which they
    are added up, and whether a loss or its gradient has room at all on how many
    examples it is of. So what is not finite on both sides is the same, and where such
    a sum is infinite on one device alone, that is no measure. In a step of which it is
    known that something overflows, NaN is none either, nor is a number where replicas
    have Inf or NaN.

    Args:
        pair: What the cluster made of it, beside that.
        reference: One device: state that was infinite before the first step is meant.
        overflows: Whether it is such a step; see `Measure.overflowing`.
    """
    places = ~np.isfinite(pair.expected)
    if not overflows and not places.any():  # as nearly always: nothing more is read
        return pair
    infinite = ~np.isfinite(pair.observed)
    if infinite.shape != places.shape or not (places.any() or infinite.any()):
        return pair
    start = reference.get(replace(pair.key.at(WHOLE), step=INITIAL))
    if start is not None and start.shape == places.shape:
        places &= np.isfinite(densify(start))
    if pair.key.phase not in COMPUTED:
        places &= infinite
    elif not overflows:
        places &= np.isinf(pair.expected) | infinite
    if overflows and pair.key.phase not in STATE:
        places |= infinite
    if not places.any():
        return pair
    expected = np.where(places, pair.observed, pair.expected)
    left = replace(pair, expected=expected, tested=[])
    if not np.any(places & ~infinite):
        return left
    # They prove nothing either, whichever bits they have.
    bound = np.where(places & ~infinite, math.inf, pair.margin.bound)
    return replace(left, margin=replace(pair.margin, bound=bound), repeats=False)


def _has_no_infinity(dtype: str) -> bool:
    """Whether NaN stands for what has no room, as in some kinds of float8."""
    return not np.isinf(round_to(np.array(math.inf), dtype))
