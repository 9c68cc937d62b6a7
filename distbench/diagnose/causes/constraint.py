"""Variables that one device keeps within limits, where a cluster does not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from distbench.compare.arrays.bounds import find_roundoff
from distbench.compare.arrays.pair import Pair
from distbench.diagnose.clues.context import Context
from distbench.trace.numbers import Array

_FEW = 2
"""So many numbers that are at the same limit are there by chance."""


def describe_constraint(context: Context) -> str:
    """Which constraint the right variables hold and the wrong ones do not, or `""`.

    A constraint is a projection after the step. What it leaves as it is must be right,
    and what it changes lies on the limit: at one number, or, of slices, at one norm.
    """
    if context.phase != "variable":
        return ""
    first: dict[tuple[int, str], Pair] = {}
    for _, case in context.list_cases():
        # Copies that all went the same way are no evidence of each other.
        first.setdefault((case.key.step, case.key.variable), case)
    cases = tuple(first.values())
    if not cases:
        return ""
    for words, right, wrong in (
        (
            "one device {}, this does not: a constraint is left out, or applied before "
            "the step and not after it",
            [case.expected for case in cases],
            [case.observed for case in cases],
        ),
        (
            "it {}, one device does not: a constraint that only the cluster has",
            [case.observed for case in cases],
            [case.expected for case in cases],
        ),
    ):
        for limit in _list_limits(cases, right, wrong):
            return words.format(limit)
    return ""


def _list_limits(
    cases: Sequence[Pair], right: Sequence[Array], wrong: Sequence[Array]
) -> Iterator[str]:
    least, most = _find_least(right, wrong), _find_least(_negate(right), _negate(wrong))
    if least is not None:
        yield f"keeps every element at {least:.6g} or above"
    if most is not None:
        yield f"keeps every element at {-most:.6g} or below"
    tolerance = 32 * max(find_roundoff(case.dtype) for case in cases)
    ranks = {case.expected.ndim for case in cases}
    axes = range(ranks.pop()) if len(ranks) == 1 else ()
    for axis in (None, *(axis for axis in axes if len(axes) > 1)):
        norm = _find_norm(right, wrong, axis, tolerance)
        if norm is not None:
            along = "whole variable" if axis is None else f"slice along {axis}"
            yield f"scales every {along} to a norm of at most {norm:.6g}"


def _negate(values: Sequence[Array]) -> list[Array]:
    return [-value for value in values]


def _find_least(right: Sequence[Array], wrong: Sequence[Array]) -> float | None:
    """The limit below which no right element lies, and all wrong ones do."""
    seen = np.concatenate([value.ravel() for value in wrong])
    due = np.concatenate([value.ravel() for value in right])
    off = seen != due
    limits = np.unique(due[off])
    if np.sum(off) < _FEW or len(limits) != 1:
        return None
    limit = float(limits[0])
    # Where nothing lies beyond it, it is what the variable is, and no limit.
    is_kept = np.all(due >= limit) and np.any(due > limit)
    return limit if is_kept and np.all(seen[off] < limit) else None


def _find_norm(
    right: Sequence[Array],
    wrong: Sequence[Array],
    axis: int | None,
    tolerance: float,
) -> float | None:
    """The norm that no right slice exceeds, and that wrong ones are scaled to."""
    norms: list[Array] = []
    scaled: list[Array] = []
    for due, seen in zip(right, wrong, strict=True):
        size = np.sqrt(np.sum(due**2, axis=axis, keepdims=True))
        other = np.sqrt(np.sum(seen**2, axis=axis, keepdims=True))
        off = np.any(due != seen, axis=axis, keepdims=True)
        if np.any(other[off] <= size[off]):
            return None
        along = np.abs(due * other - seen * size)
        if np.any(along > tolerance * size * other):
            return None
        norms.append(size.ravel())
        scaled.append(size[off].ravel())
    at_limit = np.concatenate(scaled)
    if len(at_limit) < _FEW:
        return None
    limit = float(np.median(at_limit))
    near = np.abs(at_limit - limit) <= tolerance * limit
    beyond = np.concatenate(norms) > limit * (1 + tolerance)
    is_kept = limit > 0 and np.all(near) and not np.any(beyond)
    return limit if is_kept else None
