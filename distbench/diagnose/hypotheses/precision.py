"""A narrower dtype on the way: a warning, and the run passes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from distbench.compare.arrays.bounds import bound_sum, find_roundoff
from distbench.compare.arrays.pair import Pair
from distbench.compare.arrays.ratio import fit_ratio
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.diagnose.hypotheses.narrow_scales import (
    ENOUGH_BITS,
    SMALLEST,
    count_bits,
    is_multiple,
)
from distbench.diagnose.hypotheses.narrow_sums import Sum, find_scaled, tell_scaled
from distbench.trace import SUMMED, WHOLE, Trace, TraceKey
from distbench.trace.numbers import (
    Array,
    measure_norm,
    measure_size,
    round_to,
    take_numbers,
)

_SAME_NORM = 1e-5
"""By how much norms may differ that were made in a wider dtype."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rounded:
    """What is known of a value that may have been rounded to a narrower dtype.

    Attributes:
        value: The sum of the rounded addends.
        is_told: Whether the bits tell that it was.
        is_open: Whether it may have been, and was multiplied by a number since.
        is_like: Whether its numbers are all narrow, though they may be too few to tell.
        is_due: Whether it is the plain sum of what each replica hands on, and what
            one device hands on is rounded as well.
        scaled: The value with its addends, if it is their narrow sum under a scale.
    """

    value: Array
    is_told: bool = False
    is_open: bool = False
    is_like: bool = False
    is_due: bool = False
    scaled: Sum | None = None

    @property
    def may_be(self) -> bool:
        """Whether nothing speaks against it, once something else tells."""
        return self.is_open or self.is_like or self.scaled is not None


def explain_by_rounding(context: Context) -> Iterator[Hypothesis]:
    """Values that were rounded to a narrower dtype before, after or in the sum.

    Proved by the bits, not by the size of the error: either every value is one of the
    narrow dtype's numbers, where the expected values are not and the error is within
    that dtype's own bound; or it is just the sum of the rounded addends, which may have
    been multiplied by any number for that.
    """
    if context.phase == "iterations":
        return
    for dtype in SMALLEST:
        u = find_roundoff(dtype)
        found: dict[int, Rounded] = {}
        for number, case in context.list_cases():
            if u > find_roundoff(case.dtype) > 0:
                rounded = _explain_case(context, case, dtype)
                if rounded is not None:
                    found[number] = rounded
        if not _keeps_norms(context, found):
            found = {n: rounded for n, rounded in found.items() if not rounded.is_open}
        scaled = [
            (context.cases[number], rounded.scaled)
            for number, rounded in found.items()
            if rounded.scaled is not None
        ]
        told = any(rounded.is_told for rounded in found.values())
        told = told or tell_scaled(context, scaled, dtype)
        predicted = {
            number: context.cases[number].observed
            if rounded.is_told or (told and rounded.may_be)
            else rounded.value
            for number, rounded in found.items()
        }
        if predicted:
            yield Hypothesis(
                code="lower-precision",
                predicted=predicted,
                detail=f"the values were rounded to {dtype} on the way",
                of_due=any(rounded.is_due for rounded in found.values()),
            )


def _keeps_norms(context: Context, found: Mapping[int, Rounded]) -> bool:
    """Whether what was divided by a norm has that of one device, alone or together.

    A factor that moves with a norm is known no better than the norm. What it leaves is
    known: each value is as long as it should be, or all of a step are together.
    """
    norms: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for number, rounded in found.items():
        if rounded.is_open:
            case = context.cases[number]
            lengths = measure_norm(case.observed), measure_norm(case.expected)
            norms.setdefault((case.key.step, case.key.replica), []).append(lengths)
    for pairs in norms.values():
        seen, due = (math.hypot(*column) for column in zip(*pairs, strict=True))
        alone = all(math.isclose(a, b, rel_tol=_SAME_NORM) for a, b in pairs)
        if not (alone or math.isclose(seen, due, rel_tol=_SAME_NORM)):
            return False
    return True


def _explain_case(context: Context, case: Pair, dtype: str) -> Rounded | None:
    gradients = case.key.phase in SUMMED
    terms = context.find_terms(case) if gradients else ()
    if _sums_narrow(context, case, dtype):
        return Rounded(value=case.observed, is_told=True, is_due=True)
    addends = terms or (case.expected,)
    rounded = np.asarray(sum(round_to(term, dtype) for term in addends))
    if np.array_equal(round_to(rounded, case.dtype), case.observed):
        return Rounded(value=rounded, is_told=True)
    magnitude = np.asarray(sum(np.abs(term) for term in addends))
    seen = _find_raw(context.evidence.observed, (case.key,))
    if case.rows is not None and seen is not None:
        # The slices of a row may cancel; the largest of them all is their limit.
        largest = max(measure_size(seen), measure_size(magnitude))
        magnitude = np.full_like(magnitude, largest)
    bound = bound_rounding(magnitude, len(addends), dtype)
    total = np.asarray(sum(addends))
    scale = _find_scale(case.expected, total, bound) if terms else 1.0
    if scale != 1:
        # Of a norm by which it is divided the rounding is in the factor, too.
        moved = measure_norm(bound) / measure_norm(total)
        bound = scale * (bound + 2 * moved * np.abs(total))
    bound = bound + np.where(np.isfinite(case.margin.bound), case.margin.bound, 0.0)
    if np.any(np.abs(case.observed - scale * total) > bound):
        return None
    given = _find_given(context, case) if terms else _find_due(context, case)
    told = _tell_by_bits(
        Rounded(value=rounded, is_open=scale != 1),
        seen,
        total if given is None else given,
        dtype,
        find_roundoff(case.dtype),
    )
    if told.is_told or told.is_like or told.is_open or not terms:
        return told
    scaled = find_scaled(context, case, dtype)
    is_due = scaled is not None and not context.are_near(case, case.expected, total)
    return replace(told, scaled=scaled, is_due=is_due)


def _tell_by_bits(
    rounded: Rounded, seen: Array | None, given: Array, dtype: str, own: float
) -> Rounded:
    """Whether the numbers that were seen are narrow, and those that went in are not.

    One device may round its own sum as well, so what tells is what went in.

    Args:
        rounded: Open, if the numbers were multiplied by one of them.
        seen: The numbers, if they were recorded.
        given: What went in.
        dtype: The narrow dtype.
        own: Unit roundoff of the wider one.
    """
    if seen is None:
        return replace(rounded, is_open=False)
    if rounded.is_open:
        is_open = is_multiple(seen, dtype, own) and not is_multiple(given, dtype, own)
        bits = count_bits(seen, dtype, own)
        return replace(
            rounded, is_told=is_open and bits >= ENOUGH_BITS, is_open=is_open
        )
    # Numbers of a grid have zeros without being rounded, and so has what is right.
    spare = np.log2(find_roundoff(dtype) / own)
    share = _count_share(given, dtype)
    spare = -np.log2(max(share, 2.0**-spare))
    return replace(
        rounded,
        is_like=_count_share(seen, dtype) == 1 > share,
        is_told=is_representable(seen, dtype, spare)
        and not is_representable(given, dtype, spare),
    )


def _sums_narrow(context: Context, case: Pair, dtype: str) -> bool:
    """Whether what each replica hands on is rounded, and is so on one device as well.

    The sum of what is made of each is then no more than that rounding from what is made
    of the sum, whatever is done to a gradient besides.
    """
    changed = context.find_changed(case)
    if not changed:
        return False
    own = find_roundoff(case.dtype)
    magnitude = np.asarray(sum(np.abs(term) for term in changed))
    bound = bound_rounding(magnitude, len(changed), dtype)
    total = np.asarray(sum(changed))
    if np.any(np.abs(case.observed - total) > bound) or np.any(
        np.abs(case.expected - total) > bound
    ):
        return False
    given = _find_given(context, case)
    sent = np.concatenate([term.ravel() for term in changed])
    return (
        count_bits(sent, dtype, own) >= ENOUGH_BITS
        and is_multiple(sent, dtype, own)
        and (given is None or not is_multiple(given, dtype, own))
    )


def bound_rounding(magnitude: Array, count: int, dtype: str) -> Array:
    """What a sum of narrow addends may be off from that of the wide ones.

    Each addend is rounded once before and each partial sum once after.

    Args:
        magnitude: The sum of the addends' absolute values.
        count: How many there are.
        dtype: The narrow dtype.
    """
    bound = bound_sum(magnitude, count + 1, find_roundoff(dtype))
    return bound + count * SMALLEST[dtype]


def _find_scale(expected: Array, total: Array, bound: Array) -> float:
    """By what one device multiplies a sum behind the reduction; 1 if by nothing.

    A clip by a norm multiplies it, and so does a step that is as long as the variable.
    """
    if np.all(np.abs(expected - total) <= bound):
        return 1.0
    fit = fit_ratio(expected, total)
    if fit is None or fit.ratio <= 0:
        return 1.0
    is_scaled = np.all(np.abs(expected - fit.ratio * total) <= 2 * fit.ratio * bound)
    return fit.ratio if is_scaled else 1.0


def _find_given(context: Context, case: Pair) -> Array | None:
    """The numbers of all replicas' own gradients, as they were recorded."""
    keys = [
        replace(case.key, phase="local_gradient", replica=replica)
        for replica in range(context.replicas)
    ]
    return _find_raw(context.evidence.observed, keys)


def _find_due(context: Context, case: Pair) -> Array | None:
    """The numbers that one device has in the place of a value."""
    keys = [case.key, replace(case.key, replica=WHOLE)]
    found = (_find_raw(context.evidence.reference, (key,)) for key in keys)
    return next((numbers for numbers in found if numbers is not None), None)


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
    is_chance = found.size * spare < ENOUGH_BITS
    return not is_chance and bool(np.array_equal(round_to(found, dtype), found))
