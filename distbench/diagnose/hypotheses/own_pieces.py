"""Sums of which some elements are the replica's own: nobody sums or gathers them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from distbench.compare.arrays.pair import Pair
from distbench.diagnose.clues.addends import Source, list_sources
from distbench.diagnose.clues.cases import find_tolerance
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.trace import WHOLE, TraceKey
from distbench.trace.numbers import Array

_TOLD = 3
"""So many variables are told by their elements."""
_ALL_OF_IT = (
    "Sum all elements: where a gradient is cut into pieces, what is left over (as by "
    "n // pieces) is one more piece, and shorter."
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Piecewise:
    """A value of which some elements are the sum, and others the replica's own.

    Attributes:
        case: The value.
        value: What it would be then.
        own: Where it is its own and not the sum.
        summed: Where it is the sum and not its own.
    """

    case: Pair
    value: Array
    own: Array
    summed: Array


def explain_by_parts(context: Context) -> Iterator[Hypothesis]:
    """Some elements are the sum, and the rest are each replica's own gradient.

    On each replica others, as after a reduce-scatter without the all-gather; or the
    same on all, as of a piece that nobody sends. Replicas that leave out elements of
    their own all hold the same, so some miss what is their own.
    """
    if context.phase != "reduced_gradient":
        return
    found = {
        source.number: piecewise
        for source in list_sources(context)
        if (piecewise := _read_elements(context, source))
    }
    if found:
        unsent = _find_unsent(context, list(found.values()))
        yield Hypothesis(
            code="missing-reduction",
            predicted={number: one.value for number, one in found.items()},
            detail=f"nobody sums {unsent}: there each replica keeps its own gradient, "
            "and all other elements are the sum"
            if unsent
            else "some elements are those of the sum over the replicas, on each "
            "replica others; the rest are of its own gradient",
            advice=_ALL_OF_IT if unsent else "",
            choices=2,
        )


def _read_elements(context: Context, source: Source) -> _Piecewise | None:
    case = source.case
    if case.key.replica not in source.replicas:
        return None
    own = source.terms[source.replicas.index(case.key.replica)]
    total = np.asarray(np.sum(source.terms, axis=0))
    allowed = find_tolerance(case, context.replicas)
    is_own = np.abs(case.observed - own) <= allowed
    is_sum = np.abs(case.observed - total) <= allowed
    if not np.all(is_own | is_sum) or not np.any(is_own & ~is_sum):
        return None
    return _Piecewise(
        case=case,
        value=np.where(is_own, own, total),
        own=is_own & ~is_sum,
        summed=is_sum & ~is_own,
    )


def _find_unsent(context: Context, found: Sequence[_Piecewise]) -> str:
    """The elements that are own on all replicas; empty if on some these are others."""
    places: dict[TraceKey, list[_Piecewise]] = {}
    for one in found:
        places.setdefault(one.case.key.at(WHOLE), []).append(one)
    told: dict[str, str] = {}
    for key, copies in places.items():
        rows = copies[0].case.rows
        if not all(np.array_equal(rows, one.case.rows) for one in copies):  # type: ignore[arg-type]
            return ""
        own = np.any([one.own for one in copies], axis=0)
        summed = np.any([one.summed for one in copies], axis=0)
        if len(copies) < context.replicas or np.any(own & summed):
            return ""
        told.setdefault(key.variable, _name_elements(copies[0].case, own, summed))
    words = list(told.values())[:_TOLD]
    more = f" and some of {len(told) - _TOLD} more" if len(told) > _TOLD else ""
    return ", ".join(words) + more


def _name_elements(case: Pair, own: Array, summed: Array) -> str:
    """Which elements are own: rows or a range, if these hold none of the sum."""
    path = f"'{case.key.variable}'"
    if case.rows is not None:
        return f"some elements of {path}"
    places, flat = np.flatnonzero(own), summed.ravel()
    kinds = [("element", 1, "the flattened " * (own.ndim > 1))]
    if own.ndim > 1:
        kinds.insert(0, ("row", own[0].size, ""))
    for what, size, how in kinds:
        begin, end = int(places[0]) // size, int(places[-1]) // size
        if not np.any(flat[places[-1] :]):
            end = flat.size // size - 1  # what the others have 0 of may be either
        if not np.any(flat[begin * size : (end + 1) * size]):
            numbers = f" {begin}" if begin == end else f"s {begin} to {end}"
            return f"{what}{numbers} of {how}{path}"
    return f"{len(places)} elements of {path}"
