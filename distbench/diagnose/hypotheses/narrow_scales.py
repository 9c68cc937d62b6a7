"""Numbers of a narrow dtype times one factor, and sums that were rounded under one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from distbench.compare.arrays.bounds import (
    bound_additions,
    find_roundoff,
    limit_partial_sums,
)
from distbench.trace.numbers import Array, measure_size, round_to

ENOUGH_BITS = 20
"""Zeros at the end of numbers, in bits, that are no chance: one in a million."""
_SCALINGS = 6
"""Roundings of a number that is multiplied and divided, and of the largest one."""
_TOLD_APART = 24
"""Three roundings of each number of a ratio below 2, and as much to tell two apart."""
_EXPONENT = 15
"""Of numbers that are multiplied to lie below 2**15, far smaller ones are normal."""
_LOWER = 30
"""By so many powers of two the scale may have been smaller: numbers that are not normal
have fewer digits, and float16 has room for partial sums up to 2**16 alone."""
SMALLEST = {"float16": 2.0**-24, "bfloat16": 2.0**-133, "float32": 2.0**-149}
"""The narrow dtypes with their smallest numbers."""
_LARGEST = {"float16": 65504.0}
"""Of those where addends that cancel may pass it."""
_FEW = 16
"""Numbers that are looked at before all of them are."""
_MANY = 2**16
"""So many factors are tried at most."""


def is_multiple(values: Array, dtype: str, own: float) -> bool:
    """Whether all values are numbers of a narrow dtype times one factor.

    Args:
        values: Numbers of a wider dtype.
        dtype: The narrow one.
        own: Unit roundoff of the wider one.
    """
    found = values[values != 0]
    if not found.size:
        return True
    return any(True for _ in list_scales(found, dtype, own))


def list_scales(values: Array, dtype: str, own: float) -> Iterator[float]:
    """What makes numbers of a narrow dtype of all values, up to a power of two.

    Args:
        values: Numbers of a wider dtype.
        dtype: The narrow one.
        own: Unit roundoff of the wider one.
    """
    found = values[values != 0]
    if not found.size or not np.all(np.isfinite(found)):
        return
    # Mostly a few of the numbers rule out every factor.
    factors = _list_factors(found, dtype, own)
    few = _are_narrow(np.outer(factors, found[:_FEW]), dtype, own).all(axis=1)
    for factor in factors[few]:
        if _are_narrow(factor * found, dtype, own).all():
            yield float(factor)


def count_bits(values: Array, dtype: str, own: float) -> float:
    """How improbable it is by chance that values are such multiples, in bits."""
    return _count_bits(int(np.count_nonzero(values)), _find_spare(dtype, own), dtype)


def find_scale(
    observed: Array, terms: Sequence[Array], dtype: str, own: float
) -> float | None:
    """By what addends were multiplied when they were rounded and summed; None if not.

    Each addend x became a number of the narrow dtype as s x, and so did each partial
    sum; the result was divided by s. Whatever s is, the result shows it: s times all of
    its numbers are narrow. So the addends can be rounded again, and what is left is
    what rounding of partial sums leaves.

    Args:
        observed: The sum, which s has been taken out of.
        terms: Its addends, at least two.
        dtype: The narrow dtype.
        own: Unit roundoff of the wider one.
    """
    total, addends = observed.ravel(), [term.ravel() for term in terms]
    factors = np.array(list(list_scales(total, dtype, own)))
    sizes = np.abs(np.concatenate(addends))
    least = np.min(sizes[sizes > 0], initial=np.inf)
    lowest = least * np.min(factors, initial=np.inf)
    highest = len(terms) * np.max(sizes, initial=0.0) * np.max(factors, initial=0.0)
    for lower in range(_LOWER):
        has_room = math.ldexp(highest, 1 - lower) < _LARGEST.get(dtype, math.inf)
        is_normal = math.ldexp(lowest, -lower) >= _find_least_normal(dtype)
        if lower > 1 and has_room and is_normal:
            continue  # all is rounded as before
        for scale in np.ldexp(factors, -lower):
            if _is_sum(scale, total, addends, dtype, own):
                return float(scale)
    return None


def is_scale_told(
    scale: float, observed: Array, terms: Sequence[Array], dtype: str, own: float
) -> bool:
    """Whether it is no chance that all of a sum is narrow under a scale.

    Numbers of a grid have zeros at their ends without being rounded: it is one only as
    far as what is right is not narrow as well.

    Args:
        scale: See `find_scale`.
        observed: The sum.
        terms: Its addends.
        dtype: The narrow dtype.
        own: Unit roundoff of the wider one.
    """
    total = np.asarray(np.sum(terms, axis=0))
    narrow = _are_narrow(scale * total[total != 0], dtype, own)
    share = float(np.mean(narrow)) if narrow.size else 1.0
    spare = min(_find_spare(dtype, own), -math.log2(share) if share else math.inf)
    return _count_bits(int(np.count_nonzero(observed)), spare, dtype) >= ENOUGH_BITS


def _is_sum(
    scale: float, total: Array, terms: Sequence[Array], dtype: str, own: float
) -> bool:
    """Whether a total is the narrow sum of what terms are rounded to under a scale.

    The scale is known but for some roundings, so a number that lies half-way between
    two narrow ones may have become either. The first numbers mostly settle it.
    """
    u, off = find_roundoff(dtype), _SCALINGS * own
    for part in (slice(_FEW), slice(None)):
        seen = scale * total[part]
        low, high = (
            [round_to(scale * (1 + d) * t[part], dtype) for t in terms]
            for d in (-off, off)
        )
        sums = [np.sum(pick(low, high), axis=0) for pick in (np.minimum, np.maximum)]
        rounding = [
            bound_additions(limit_partial_sums(side), np.sum(side, axis=0), u)
            for side in (low, high)
        ]
        allowed = np.maximum(*rounding) + off * np.abs(seen)
        if not np.all((sums[0] - allowed <= seen) & (seen <= sums[1] + allowed)):
            return False
    return True


def _list_factors(found: Array, dtype: str, own: float) -> Array:
    """What may make narrow numbers of some: the largest becomes one of them."""
    largest = measure_size(found)
    u = find_roundoff(dtype)
    if own * _TOLD_APART > u * u:
        is_few = 2 * u * _MANY >= 1
        kinds = _list_kinds(dtype) if is_few else _list_rare_kinds(found, dtype, own)
        return kinds / largest
    # Ratios of integers below 1/u lie u² apart or more, so the numbers' are known, and
    # the largest is a multiple of all denominators. If one will do, so does the least.
    ratios = 2 * np.frexp(np.abs(found[:_FEW] / largest))[0]
    least = math.lcm(
        *(
            Fraction(float(ratio)).limit_denominator(round(1 / u)).denominator
            for ratio in ratios
        )
    )
    kind = math.ldexp(math.frexp(least)[0], _EXPONENT)
    return np.array([kind] if least * u <= 1 else []) / largest


def _are_narrow(values: Array, dtype: str, own: float) -> npt.NDArray[np.bool_]:
    """Which values are numbers of a narrow dtype, but for a few roundings."""
    off = np.abs(round_to(values, dtype) - values)
    return np.asarray(off <= _SCALINGS * own * np.abs(values))


def _find_spare(dtype: str, own: float) -> float:
    """How many bits of a wider number are zeros where it is narrow."""
    return float(np.log2(find_roundoff(dtype) / (_SCALINGS * own)))


def _find_least_normal(dtype: str) -> float:
    """The smallest number that has all digits."""
    return SMALLEST[dtype] / (2 * find_roundoff(dtype))


def _count_bits(count: int, spare: float, dtype: str) -> float:
    """Zeros of so many numbers, without those that the choice of a factor makes."""
    return (count - 1) * spare + math.log2(2 * find_roundoff(dtype))


def _list_kinds(dtype: str) -> Array:
    """The numbers of a dtype between two powers of two."""
    return 2.0**_EXPONENT * np.arange(0.5, 1.0, find_roundoff(dtype))


def _list_rare_kinds(found: Array, dtype: str, own: float) -> Array:
    """Those of a dtype that has too many, which make another number narrow as well.

    Of some number few do, unless all are small multiples of one, or too little is known
    of them: then only what was not multiplied is asked for.
    """
    largest, u = measure_size(found), find_roundoff(dtype)
    off = 2 / u * _SCALINGS * own
    rarest, least = np.arange(0.0), _MANY
    for ratio in np.unique(2 * np.frexp(np.abs(found[:_FEW] / largest))[0]):
        made = _list_integers(float(ratio), round(1 / u), off, least)
        if made is not None:
            rarest, least = made, made.size
    plain = math.frexp(largest)[0]
    return math.ldexp(1.0, _EXPONENT) * np.append(u * rarest, plain)


def _list_integers(ratio: float, end: int, off: float, most: int) -> Array | None:
    """The integers n from end/2 on with n * ratio near another one.

    Each n is a multiple of about the root of the end, and a rest. The fractions that
    all rests leave are sorted, so those that go with a multiple are found at once.

    Args:
        ratio: From 1 to 2.
        end: Twice the first n; a power of two.
        off: How near.
        most: None if there are more.
    """
    root = 2 ** (end.bit_length() // 2)
    firsts, rests = np.arange(end // 2, end, root), np.arange(root)
    fractions = rests * ratio % 1.0
    order = np.argsort(fractions)
    around = np.concatenate([fractions[order] + turn for turn in (-1, 0, 1)])
    wanted = -firsts * ratio % 1.0
    begins = np.searchsorted(around, wanted - off)
    counts = np.searchsorted(around, wanted + off, side="right") - begins
    if np.sum(counts) > most:
        return None
    found = [
        first + order[np.arange(begin, begin + count) % root]
        for first, begin, count in zip(firsts, begins, counts, strict=True)
        if count
    ]
    return np.concatenate([np.arange(0.0), *found])
