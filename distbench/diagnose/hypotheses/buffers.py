"""Causes in a buffer that holds the gradients of several variables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from distbench.compare.arrays.pair import Pair
from distbench.compare.inside.pieces import (
    cut_piece,
    find_place,
    find_start,
    measure_move,
)
from distbench.diagnose.clues.cases import find_tolerance
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.trace import SUMMED
from distbench.trace.numbers import Array, measure_norm

Sums = Mapping[str, Array]
"""By variable, the sum of the replicas' gradients of one update, flat."""
_NEAR = 0.5
"""Share of a value's norm that a piece may leave of it, to be worth the next one."""

Layout = Callable[[Sums, Pair], tuple[Array, str] | None]
"""The piece of a buffer that a value gets, flat, and words about its place."""


def explain_by_cuts(context: Context) -> Iterator[Hypothesis]:
    """All sums lie in one buffer, which is cut up in another order than it was filled.

    Where neighbours have other sizes, every piece holds parts of several variables, so
    that no single one is what it was paired with.
    """
    if context.phase not in SUMMED:
        return
    paths = [v.path for v in context.infos.values() if v.role == "variable"]
    layouts: dict[str, Layout] = {}
    for words, order in list_orders(context, paths):
        for what, filled, cut in (
            (f"filled {words} and cut in that of the variables", order, paths),
            (f"filled in the order of the variables and cut {words}", paths, order),
        ):
            detail = f"one buffer of all gradients is {what}"
            layouts[detail] = partial(cut_in_order, filled=filled, cut=cut)
    for detail, (predicted, _) in _try_layouts(context, paths, layouts).items():
        yield Hypothesis(code="wrong-pairing", predicted=predicted, detail=detail)


def explain_by_offsets(context: Context) -> Iterator[Hypothesis]:
    """Pieces of one buffer begin at other places than their own."""
    if context.phase not in SUMMED:
        return
    paths = [v.path for v in context.infos.values() if v.role == "variable"]
    orders = [("in the order of the variables", paths), *list_orders(context, paths)]
    layouts: dict[str, Layout] = {
        f"pieces of one buffer, filled {words}, are cut at wrong places": partial(
            cut_elsewhere, order=order, replicas=context.replicas
        )
        for words, order in orders
    }
    for detail, (predicted, told) in _try_layouts(context, paths, layouts).items():
        yield Hypothesis(
            code="wrong-pairing",
            predicted=predicted,
            detail=f"{detail}: {', '.join(sorted(told)[:3])}",
        )


def _try_layouts(
    context: Context, paths: Sequence[str], layouts: Mapping[str, Layout]
) -> dict[str, tuple[dict[int, Array], set[str]]]:
    """What each layout foretells, of those that come near to the largest values.

    The sums of one update are there at a time, and a layout is given up where it misses
    an update's largest value: of a large model all of them would fill the memory. Of
    several updates of a step each may have a buffer, or all have one.
    """
    found = _try_each(context, paths, layouts)
    if context.evidence.reference.calls > 1:
        found |= {
            f"{words}, for all updates of a step": made
            for words, made in _try_each(context, paths, layouts, joins=True).items()
        }
    return found


def _try_each(
    context: Context,
    paths: Sequence[str],
    layouts: Mapping[str, Layout],
    *,
    joins: bool = False,
) -> dict[str, tuple[dict[int, Array], set[str]]]:
    found: dict[str, tuple[dict[int, Array], set[str]]] = {
        words: ({}, set()) for words in layouts
    }
    for numbers in list_updates(context, joins=joins):
        sums = sum_all(context, numbers[0], paths, joins=joins)
        for words in list(found):
            for number in numbers:
                case = context.cases[number]
                piece = layouts[words](sums, case)
                if piece is not None and comes_near(piece[0], case.observed):
                    predicted, told = found[words]
                    predicted[number] = piece[0].reshape(case.observed.shape)
                    told.add(piece[1])
                elif number == numbers[0]:
                    del found[words]
                    break
    return {words: made for words, made in found.items() if made[0]}


def comes_near(piece: Array, observed: Array) -> bool:
    """Whether a piece leaves little of a value."""
    rest = piece - observed.ravel() if piece.size == observed.size else observed
    return measure_norm(rest) <= _NEAR * measure_norm(observed)


def list_updates(context: Context, *, joins: bool = False) -> list[list[int]]:
    """Numbers of the wrong values of each update, the largest value first.

    Args:
        context: What is wrong.
        joins: Whether all updates of a step are taken for one.
    """
    found: dict[tuple[int, int], list[int]] = {}
    for number in _list_dense(context):
        key = context.cases[number].key
        found.setdefault((key.step, 0 if joins else key.call), []).append(number)
    return [
        sorted(numbers, key=lambda number: -context.cases[number].observed.size)
        for numbers in found.values()
    ]


def _list_dense(context: Context) -> Iterator[int]:
    """Values that are wrong as a whole, whatever rows some replicas sent of them."""
    for number, case in context.list_cases():
        shape = context.infos[case.key.variable].shape
        if case.rows is None or len(case.rows) == shape[0]:
            yield number


def sum_all(
    context: Context,
    number: int,
    paths: Sequence[str],
    replicas: Sequence[int] | None = None,
    *,
    joins: bool = False,
) -> Sums:
    """The sum of all replicas' gradients of every variable, or of some replicas'.

    Args:
        context: What is wrong.
        number: That of a case of the update.
        paths: The variables.
        replicas: Those that add up.
        joins: Whether gradients of other updates of the step are taken as well.
    """
    case = replace(context.cases[number], rows=None)
    sums = {}
    for path in paths:
        terms = context.find_terms_of(
            context.move_to(case, path) if joins else case, path
        )
        if terms:
            kept = terms if replicas is None else [terms[r] for r in replicas]
            sums[path] = np.asarray(np.sum(kept, axis=0)).ravel()
    return sums


def list_orders(
    context: Context, paths: Sequence[str]
) -> Iterator[tuple[str, list[str]]]:
    """Orders of the variables but for their own, in words."""
    sizes = {path: int(np.prod(context.infos[path].shape)) for path in paths}
    yield "in the order of the names", sorted(paths)
    yield "from last to first", list(reversed(paths))
    yield "from small to large", sorted(paths, key=lambda path: sizes[path])
    yield "from large to small", sorted(paths, key=lambda path: -sizes[path])


def cut_in_order(
    sums: Sums, case: Pair, *, filled: Sequence[str], cut: Sequence[str]
) -> tuple[Array, str] | None:
    """What lands where a variable's piece is cut out, if that is not its own."""
    name = case.key.variable
    if name not in sums:
        return None
    pieces = [path for path in filled if path in sums]
    start = find_place(sums, [path for path in cut if path in sums], name)
    if start == find_place(sums, pieces, name):
        return None  # whatever is wrong with it, its place is right
    buffer = np.concatenate([sums[path] for path in pieces])
    return buffer[start : start + sums[name].size], ""


def cut_elsewhere(
    sums: Sums, case: Pair, *, order: Sequence[str], replicas: int
) -> tuple[Array, str] | None:
    """What a value is, from wherever in the buffer that may be but its own place."""
    name, wanted = case.key.variable, case.observed.ravel()
    if name not in sums or not np.any(wanted):
        return None
    places = [path for path in order if path in sums]
    buffer = np.concatenate([sums[path] for path in places])
    allowed = np.ravel(find_tolerance(case, replicas))
    start = find_start(buffer, wanted, allowed)
    if start is None:
        return None
    moved = measure_move(buffer, start, find_place(sums, places, name))
    piece = cut_piece(buffer, start, wanted.size)
    return (piece, f"'{name}' {moved:+d}") if moved else None
