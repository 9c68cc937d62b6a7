"""Sums of which some elements are the replica's own: nobody sums or gathers them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from distbench.compare.arrays.pair import Pair
from distbench.diagnose.clues.addends import Source, list_sources
from distbench.diagnose.clues.cases import find_tolerance
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.trace import WHOLE, TraceKey
from distbench.trace.numbers import Array

Flags = npt.NDArray[np.bool_]

_TOLD = 3
"""So many variables are told by their elements."""
_PARTLY = "some elements are those of the sum over the replicas"
_REST = "the rest are of its own gradient"
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
        summed: Where it is the sum and not its own, or a right copy of another replica
            is the sum and not that one's own.
    """

    case: Pair
    value: Array
    own: Flags
    summed: Flags


def explain_by_parts(context: Context) -> Iterator[Hypothesis]:
    """Some elements are the sum, and the rest are each replica's own gradient.

    On each replica others, as after a reduce-scatter without the all-gather; or the
    same on all, as of a piece that nobody sends. Where the others add nothing, a
    replica's own is the sum, which speaks for neither. Replicas that leave out elements
    of their own all hold the same, so some miss what is their own.
    """
    if context.phase != "reduced_gradient":
        return
    found = {
        source.number: piecewise
        for source in list_sources(context)
        if (piecewise := _read_elements(context, source))
    }
    if found:
        words, advice = _describe(context, list(found.values()))
        yield Hypothesis(
            code="missing-reduction",
            predicted={number: one.value for number, one in found.items()},
            detail=words,
            advice=advice,
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
    # A right copy holds the sum.
    right = [
        np.abs(total - term) > allowed
        for replica, term in zip(source.replicas, source.terms, strict=True)
        if case.key.at(replica) in context.right
    ]
    return _Piecewise(
        case=case,
        value=np.where(is_own, own, total),
        own=is_own & ~is_sum,
        summed=np.any([is_sum & ~is_own, *right], axis=0),
    )


def _describe(context: Context, found: Sequence[_Piecewise]) -> tuple[str, str]:
    """What is said of the elements that are own, and the advice, if it has one."""
    places: dict[TraceKey, list[_Piecewise]] = {}
    for one in found:
        places.setdefault(one.case.key.at(WHOLE), []).append(one)
    told: dict[str, str] = {}
    is_seen = True
    for key, copies in places.items():
        own, summed = _lay_together(copies)
        if np.any(own & summed):
            return f"{_PARTLY}, on each replica others; {_REST}", ""
        wrong = {one.case.key.replica for one in copies}
        is_seen = is_seen and all(
            replica in wrong or key.at(replica) in context.right
            for replica in range(context.replicas)
        )
        told.setdefault(key.variable, _name_elements(copies[0].case, own, summed))
    if not is_seen:
        return f"{_PARTLY}, and {_REST}", ""
    unsent = _join(list(told.values()))
    return (
        f"nobody sums {unsent}: there each replica keeps its own gradient, and all "
        "other elements are the sum",
        _ALL_OF_IT,
    )


def _lay_together(copies: Sequence[_Piecewise]) -> tuple[Flags, Flags]:
    """Where any copy is its own, and where any is the sum, in the rows of all."""
    rows = [one.case.rows for one in copies if one.case.rows is not None]
    if not rows:
        return (
            np.any([one.own for one in copies], axis=0),
            np.any([one.summed for one in copies], axis=0),
        )
    union = np.unique(np.concatenate(rows))
    own, summed = np.zeros((2, len(union), *copies[0].own.shape[1:]), bool)
    for one, of_copy in zip(copies, rows, strict=True):
        at = np.searchsorted(union, of_copy)
        own[at] |= one.own
        summed[at] |= one.summed
    return own, summed


def _join(told: Sequence[str]) -> str:
    more = f" and some of {len(told) - _TOLD} more" if len(told) > _TOLD else ""
    return ", ".join(told[:_TOLD]) + more


def _name_elements(case: Pair, own: Flags, summed: Flags) -> str:
    """Which elements are own: rows or a range, if these hold none of the sum."""
    path = f"'{case.key.variable}'"
    if case.rows is not None:
        return f"some elements of {path}"
    if own.ndim == 0:
        return path
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
