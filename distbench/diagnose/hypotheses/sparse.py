"""Causes in sparse gradients: rows overwritten, averaged or misplaced."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from distbench.diagnose.clues.cases import find_tolerance, take_rows
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.diagnose.hypotheses.slices import (
    add_rows,
    find_slices,
    gather_rows,
    join_slices,
    pick_slices,
)
from distbench.trace import GRADIENTS, WHOLE, SparseRows
from distbench.trace.numbers import Array, measure_size

Counts = npt.NDArray[np.int64]

Combined = tuple[str, str, Array]
"""Code, words, and the dense gradient that would come of it."""


def explain_by_rows(context: Context) -> Iterator[Hypothesis]:
    """Wrong ways to add up slices, each computed from the replicas' own slices."""
    if context.phase not in GRADIENTS:
        return
    found: dict[tuple[str, str], dict[int, Array]] = {}
    for number, case in context.list_cases():
        slices = find_slices(context, case)
        if slices:
            combined = list(_combine_wrongly(slices))
            picked = [("of slices for the same row only one counts", slices)]
            if len(slices) > 1:
                added = tuple(add_rows(one) for one in slices)
                picked.append(
                    ("of the replicas that have a row only one counts", added)
                )
            if len(slices) == context.replicas > 1:
                combined += _keep_indices(slices, case.key.replica)
            for code, words, dense in combined:
                found.setdefault((code, words), {})[number] = take_rows(dense, case)
            for words, parts in picked:
                one = pick_slices(parts, case, case.observed)
                found.setdefault(("sparse-duplicates", words), {})[number] = one
    for (code, words), predicted in found.items():
        yield Hypothesis(code=code, predicted=predicted, detail=words)


def explain_by_own_count(context: Context) -> Iterator[Hypothesis]:
    """Each replica divides a row by how often it has that row itself.

    Of the slices' sums g_r and numbers c_r of a row, Σ g_r / Σ c_r is due where one
    device divides by the number as well, and Σ g_r / c_r came.
    """
    if context.phase != "reduced_gradient" or context.replicas == 1:
        return
    predicted = {}
    for number, case in context.list_cases():
        key = replace(case.key, phase="local_gradient")
        found = context.evidence.observed.get_replicas(key)
        slices = [value for value in found if isinstance(value, SparseRows)]
        if len(slices) != context.replicas:
            continue
        dense = [s.to_dense() for s in slices]
        counts = [_column(s.count_rows(), s.shape) for s in slices]
        due = np.sum(dense, axis=0) / np.maximum(1, np.sum(counts, axis=0))
        parts = [d / np.maximum(1, c) for d, c in zip(dense, counts, strict=True)]
        excess = take_rows(np.asarray(np.sum(parts, axis=0) - due), case)
        predicted[number] = case.expected + excess
    yield Hypothesis(
        code="sparse-averaged",
        predicted=predicted,
        detail="every replica divides a row by the number of its own slices for it, "
        "where one device divides by that of all examples, which all_reduce gives",
        of_due=True,
    )


def explain_by_shifted_replica(context: Context) -> Iterator[Hypothesis]:
    """All rows of one replica lie one too far, the others' where they belong."""
    if context.phase != "reduced_gradient" or context.replicas == 1:
        return
    slices = {n: context.find_slices(case) for n, case in context.list_cases()}
    for replica in range(context.replicas):
        for shift in (1, -1):
            predicted = {}
            for number, parts in slices.items():
                if parts:
                    dense = [part.to_dense() for part in parts]
                    dense[replica] = np.roll(dense[replica], shift, axis=0)
                    total = np.asarray(np.sum(dense, axis=0))
                    predicted[number] = take_rows(total, context.cases[number])
            yield Hypothesis(
                code="sparse-rows",
                predicted=predicted,
                detail=f"every row of replica {replica} lies 1 too far "
                f"{'down' if shift > 0 else 'up'}",
                replicas=(replica,),
            )


def _combine_wrongly(slices: Sequence[SparseRows]) -> Iterator[Combined]:
    n = len(slices)
    joined = join_slices(slices)
    indices, shape = joined.indices, joined.shape
    values = np.asarray(joined.values, np.float64)

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
    yield from _pick_replicas(slices)
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


def _pick_replicas(slices: Sequence[SparseRows]) -> Iterator[Combined]:
    """Every replica adds up its slices; of several replicas with a row one counts."""
    if len(slices) == 1:
        return
    for words, order in (("last", slices), ("first", tuple(reversed(slices)))):
        kept = np.zeros(slices[0].shape)
        for one in order:
            added = add_rows(one)
            kept[added.indices] = added.values
        yield (
            "sparse-duplicates",
            f"of the replicas that have a row only the {words} one counts",
            kept,
        )


def _swap_indices(slices: Sequence[SparseRows]) -> Iterator[Combined]:
    """All replicas' slices under the indices of one of them.

    Of replicas with fewer slices the rest counts as 0, or all are cut to the fewest.
    """
    fewest = min(len(s.indices) for s in slices)
    for number, owner in enumerate(slices):
        for (some, count), (words, scale) in itertools.product(
            (("", len(owner.indices)), ("first ", fewest)),
            (("added up", 1.0), ("averaged", 1 / len(slices))),
        ):
            values = [_fit_length(np.asarray(s.values), count) for s in slices]
            placed = replace(
                owner,
                indices=owner.indices[:count],
                values=np.asarray(scale * np.sum(values, axis=0)),
            )
            yield (
                "sparse-rows",
                f"all replicas' {some}slices are {words} under the indices of replica "
                f"{number}",
                placed.to_dense(),
            )


def _keep_indices(slices: Sequence[SparseRows], own: int) -> Iterator[Combined]:
    """All replicas' slices added up by position, under each replica's own indices.

    Repeated rows may have been added up before, in the order of their first slice. What
    other replicas have more is left out, or lands in row 0, as padding does.
    """
    if own == WHOLE:
        return
    for how, parts in (
        ("slices", slices),
        ("rows", [add_rows(s) for s in slices]),
        ("rows, in the order of their first slices,", [gather_rows(s) for s in slices]),
    ):
        owner = parts[own]
        longest = max(len(part.indices) for part in parts)
        total = sum(_fit_length(np.asarray(p.values), longest) for p in parts)
        count = len(owner.indices)
        padding = np.zeros(longest - count, owner.indices.dtype)
        for rest, kept, indices in (
            ("left out", count, owner.indices),
            ("in row 0", longest, np.concatenate([owner.indices, padding])),
        ):
            placed = replace(owner, indices=indices, values=np.asarray(total)[:kept])
            yield (
                "sparse-rows",
                f"all replicas' {how} are added up by position, under the indices of "
                f"each replica's own; what others have more is {rest}",
                placed.to_dense(),
            )


def _fit_length(values: Array, count: int) -> Array:
    """The first slices, or all of them and as many of zeros as it takes."""
    fitted = np.zeros((count, *values.shape[1:]))
    kept = min(count, len(values))
    fitted[:kept] = values[:kept]
    return fitted


def explain_by_moved_rows(context: Context) -> Iterator[Hypothesis]:
    """Every observed row is a right row of another place, or is missing."""
    if context.phase not in GRADIENTS:
        return
    predicted: dict[int, Array] = {}
    for number, case in context.list_cases():
        if not find_slices(context, case) or case.observed.ndim < 2:
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
