"""Causes in sparse gradients: rows overwritten, averaged or misplaced."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from distbench.compare.pairs import Pair
from distbench.compare.values import Array, measure_size
from distbench.diagnose.context import (
    Context,
    Hypothesis,
    find_tolerance,
    take_rows,
)
from distbench.trace import WHOLE, SparseRows

PHASES = ("local_gradient", "reduced_gradient", "applied_gradient")

Counts = npt.NDArray[np.int64]

Combined = tuple[str, str, Array]
"""Code, words, and the dense gradient that would come of it."""


def explain_by_rows(context: Context) -> Iterator[Hypothesis]:
    """Wrong ways to add up slices, each computed from the replicas' own slices."""
    if context.phase not in PHASES:
        return
    found: dict[tuple[str, str], dict[int, Array]] = {}
    for number, case in context.list_cases():
        slices = _find_slices(context, case)
        if slices:
            for code, words, dense in _combine_wrongly(slices):
                found.setdefault((code, words), {})[number] = take_rows(dense, case)
            words = "of slices for the same row only one counts"
            one = _pick_slices(slices, case)
            found.setdefault(("sparse-duplicates", words), {})[number] = one
    for (code, words), predicted in found.items():
        yield Hypothesis(code=code, predicted=predicted, detail=words)


def _find_slices(context: Context, case: Pair) -> tuple[SparseRows, ...]:
    if context.phase == "local_gradient" and case.key.replica != WHOLE:
        value = context.evidence.reference.get(case.key)
        return (value,) if isinstance(value, SparseRows) else ()
    if context.phase == "applied_gradient":
        value = context.evidence.observed.get(
            replace(case.key, phase="reduced_gradient")
        )
        if isinstance(value, SparseRows):
            return (value,)
    return context.find_slices(case)


def _combine_wrongly(slices: Sequence[SparseRows]) -> Iterator[Combined]:
    n = len(slices)
    indices = np.concatenate([s.indices for s in slices])
    values = np.concatenate([np.asarray(s.values, np.float64) for s in slices])
    shape = slices[0].shape

    last = _assign(indices, values, shape)
    yield "sparse-duplicates", "of slices for the same row only the last counts", last
    first = _assign(indices[::-1], values[::-1], shape)
    yield "sparse-duplicates", "of slices for the same row only the first counts", first
    for words, turn in (("last", 1), ("first", -1)):
        each = [
            _assign(s.indices[::turn], np.asarray(s.values, np.float64)[::turn], shape)
            for s in slices
        ]
        yield (
            "sparse-duplicates",
            f"of a replica's slices for the same row only the {words} counts",
            np.asarray(np.sum(each, axis=0)),
        )
    dense = [s.to_dense() for s in slices]
    rows = _column(np.maximum(1, sum(s.count_rows() for s in slices)), shape)
    total = np.asarray(np.sum(dense, axis=0))
    yield (
        "sparse-averaged",
        "every row is divided by the number of its slices over all replicas",
        total / rows,
    )
    counts = [_column(np.maximum(1, s.count_rows()), shape) for s in slices]
    means = np.sum([d / c for d, c in zip(dense, counts, strict=True)], axis=0)
    yield (
        "sparse-averaged",
        "every replica divides a row by the number of its slices",
        np.asarray(means),
    )
    if n > 1:
        touched = np.sum([s.count_rows() > 0 for s in slices], axis=0)
        yield (
            "sparse-averaged",
            "every row is divided by the number of replicas that have it",
            total / _column(np.maximum(1, touched), shape),
        )
        yield from _swap_indices(slices)
    for shift in (1, -1):
        yield (
            "sparse-rows",
            f"every row lies {abs(shift)} too far {'down' if shift > 0 else 'up'}",
            np.roll(total, shift, axis=0),
        )


def _pick_slices(slices: Sequence[SparseRows], case: Pair) -> Array:
    """For each row that slice which is nearest to what was observed."""
    indices = np.concatenate([s.indices for s in slices])
    values = np.concatenate([np.asarray(s.values, np.float64) for s in slices])
    rows = np.arange(len(case.observed)) if case.rows is None else case.rows
    picked = np.zeros_like(case.observed)
    for place, row in enumerate(rows):
        found = values[indices == row]
        if len(found):
            rest = np.abs(found - case.observed[place]).reshape(len(found), -1)
            picked[place] = found[int(np.argmin(rest.sum(axis=1)))]
    return picked


def _swap_indices(slices: Sequence[SparseRows]) -> Iterator[Combined]:
    """All replicas' slices under the indices of one of them."""
    if len({len(s.indices) for s in slices}) > 1:
        shortest = min(len(s.indices) for s in slices)
    else:
        shortest = len(slices[0].indices)
    values = [np.asarray(s.values, np.float64)[:shortest] for s in slices]
    for number, owner in enumerate(slices):
        for words, scale in (("added up", 1.0), ("averaged", 1 / len(slices))):
            placed = replace(
                owner,
                indices=owner.indices[:shortest],
                values=np.asarray(scale * np.sum(values, axis=0)),
            )
            yield (
                "sparse-rows",
                f"all replicas' slices are {words} under the indices of replica "
                f"{number}",
                placed.to_dense(),
            )


def explain_by_moved_rows(context: Context) -> Iterator[Hypothesis]:
    """Every observed row is a right row of another place, or is missing."""
    if context.phase not in PHASES:
        return
    predicted: dict[int, Array] = {}
    for number, case in context.list_cases():
        if not _find_slices(context, case) or case.observed.ndim < 2:
            continue
        seen = case.observed.reshape(len(case.observed), -1)
        wanted = case.expected.reshape(len(case.expected), -1)
        moved = np.zeros_like(seen)
        tolerance = measure_size(np.asarray(find_tolerance(case, context.replicas)))
        for row, values in enumerate(seen):
            rest = np.max(np.abs(wanted - values), axis=1, initial=0.0)
            nearest = int(np.argmin(rest))
            if rest[nearest] <= tolerance and np.any(values):
                moved[row] = wanted[nearest]
        predicted[number] = moved.reshape(case.observed.shape)
    if predicted:
        yield Hypothesis(
            code="sparse-rows",
            predicted=predicted,
            detail="rows of the gradient are at the place of others, or are missing",
        )


def _assign(indices: Counts, values: Array, shape: tuple[int, ...]) -> Array:
    dense = np.zeros(shape)
    for row, value in zip(indices, values, strict=True):
        dense[row] = value
    return dense


def _column(counts: Counts, shape: tuple[int, ...]) -> Array:
    return np.asarray(counts, np.float64).reshape(-1, *(1 for _ in shape[1:]))
