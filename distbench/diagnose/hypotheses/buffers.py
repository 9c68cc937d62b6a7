"""Causes in a buffer that holds the gradients of several variables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from distbench.compare.pieces import cut_piece, find_start, measure_move
from distbench.compare.values import Array
from distbench.diagnose.context import Context, Hypothesis, find_tolerance
from distbench.trace import SUMMED


def explain_by_cuts(context: Context) -> Iterator[Hypothesis]:
    """All sums lie in one buffer, which is cut up in another order than it was filled.

    Where neighbours have other sizes, every piece holds parts of several variables, so
    that no single one is what it was paired with.
    """
    if context.phase not in SUMMED:
        return
    paths = [v.path for v in context.infos.values() if v.role == "variable"]
    steps = {
        number: _sum_all(context, number, paths) for number in _list_dense(context)
    }
    for words, order in _list_orders(context, paths):
        for what, filled, cut in (
            (f"filled {words} and cut in that of the variables", order, paths),
            (f"filled in the order of the variables and cut {words}", paths, order),
        ):
            predicted: dict[int, Array] = {}
            for number, sums in steps.items():
                case = context.cases[number]
                piece = _cut(sums, filled, cut, case.key.variable)
                if piece is not None and piece.size == case.observed.size:
                    predicted[number] = piece.reshape(case.observed.shape)
            if predicted:
                yield Hypothesis(
                    code="wrong-pairing",
                    predicted=predicted,
                    detail=f"one buffer of all gradients is {what}",
                )


def explain_by_offsets(context: Context) -> Iterator[Hypothesis]:
    """Pieces of one buffer begin at other places than their own."""
    if context.phase not in SUMMED:
        return
    paths = [v.path for v in context.infos.values() if v.role == "variable"]
    steps = {
        number: _sum_all(context, number, paths) for number in _list_dense(context)
    }
    orders = [("in the order of the variables", paths), *_list_orders(context, paths)]
    for words, order in orders:
        predicted: dict[int, Array] = {}
        told: set[str] = set()
        for number, sums in steps.items():
            case = context.cases[number]
            places = [path for path in order if path in sums]
            wanted = case.observed.ravel()
            if case.key.variable not in places or not np.any(wanted):
                continue
            buffer = np.concatenate([sums[path] for path in places])
            allowed = np.ravel(find_tolerance(case, context.replicas))
            start = find_start(buffer, wanted, allowed)
            if start is None:
                continue
            before = places[: places.index(case.key.variable)]
            own = sum(sums[path].size for path in before)
            moved = measure_move(buffer, start, own)
            piece = cut_piece(buffer, start, wanted.size)
            predicted[number] = piece.reshape(case.observed.shape)
            told.add(f"'{case.key.variable}' {moved:+d}")
        if predicted:
            yield Hypothesis(
                code="wrong-pairing",
                predicted=predicted,
                detail=f"pieces of one buffer, filled {words}, are cut at wrong "
                f"places: {', '.join(sorted(told)[:3])}",
            )


def _list_dense(context: Context) -> Iterator[int]:
    """Values that are wrong as a whole, whatever rows some replicas sent of them."""
    for number, case in context.list_cases():
        shape = context.infos[case.key.variable].shape
        if case.rows is None or len(case.rows) == shape[0]:
            yield number


def _sum_all(context: Context, number: int, paths: Sequence[str]) -> dict[str, Array]:
    """The sum of the replicas' gradients of every variable, flat."""
    case = replace(context.cases[number], rows=None)
    sums = {}
    for path in paths:
        terms = context.find_terms_of(case, path)
        if terms:
            sums[path] = np.asarray(np.sum(terms, axis=0)).ravel()
    return sums


def _list_orders(
    context: Context, paths: Sequence[str]
) -> Iterator[tuple[str, list[str]]]:
    sizes = {path: int(np.prod(context.infos[path].shape)) for path in paths}
    yield "in the order of the names", sorted(paths)
    yield "from last to first", list(reversed(paths))
    yield "from small to large", sorted(paths, key=lambda path: sizes[path])
    yield "from large to small", sorted(paths, key=lambda path: -sizes[path])


def _cut(
    sums: dict[str, Array], filled: Sequence[str], cut: Sequence[str], wanted: str
) -> Array | None:
    """What lands where a variable's piece is cut out."""
    if wanted not in sums:
        return None
    buffer = np.concatenate([sums[path] for path in filled if path in sums])
    places = [path for path in cut if path in sums]
    ends = np.cumsum([0, *(sums[path].size for path in places)])
    for path, (start, end) in zip(places, pairwise(ends), strict=True):
        if path == wanted:
            return np.asarray(buffer[start:end])
    return None
