"""Buffers of several gradients that some replicas fill in another order than others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from distbench.compare.inside.pieces import cut_piece, find_place, find_start
from distbench.diagnose.clues.cases import find_tolerance
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.diagnose.hypotheses.buffers import (
    Sums,
    comes_near,
    list_orders,
    list_updates,
    sum_all,
)
from distbench.diagnose.hypotheses.pairing import list_groups
from distbench.diagnose.names import name_replicas
from distbench.trace import SUMMED
from distbench.trace.numbers import Array

_ADVICE = (
    "Pack gradients on all replicas in one order, such as that of the variables, "
    "whichever of them are ready first."
)


def explain_by_own_order(context: Context) -> Iterator[Hypothesis]:
    """Some replicas fill what is added up in another order than the others.

    All of it is added up, but elements of other places: every value is what the others
    have of its variable, and a piece of that replica's buffer from another place.
    """
    if context.phase not in SUMMED or context.replicas == 1:
        return
    updates = list_updates(context)
    if not updates or not all(_keeps_total(context, one) for one in updates):
        return
    paths = [v.path for v in context.infos.values() if v.role == "variable"]
    orders = [("in the order of the variables", paths), *list_orders(context, paths)]
    for group in list_groups(context.replicas):
        # Of a large model they are read once for all orders that miss the first update.
        first = sum_all(context, updates[0][0], paths, group)
        found: list[tuple[bool, str, dict[int, Array]]] = []
        for words, order in orders:
            for step, ending in ((1, ""), (-1, ", the last element first,")):
                predicted, is_whole = _foretell(
                    context, updates, first, group, order, step
                )
                told = words if is_whole else "in another order"
                if predicted:
                    found.append((is_whole, told + ending, predicted))
        # What is cut where the variables' own pieces are tells the order of all.
        for _, told, predicted in sorted(found, key=lambda one: not one[0]):
            yield Hypothesis(
                code="wrong-pairing",
                predicted=predicted,
                detail=f"{name_replicas(group)} packed gradients {told} into what is "
                "added up, and the others did not: so each sum adds elements that "
                "belong to different places",
                replicas=group,
                advice=_ADVICE,
            )


def _keeps_total(context: Context, numbers: Sequence[int]) -> bool:
    """Whether all elements of an update have the sum that those of the addends have.

    To be moved changes none of them.
    """
    gap = allowed = 0.0
    for number in numbers:
        case = context.cases[number]
        terms = context.find_terms(case)
        if not terms:
            return False
        rest = case.observed - np.sum(terms, axis=0)
        limit = find_tolerance(case, context.replicas)
        gap += float(np.sum(rest, dtype=np.float64))
        allowed += float(np.sum(np.broadcast_to(limit, rest.shape)))
    return abs(gap) <= allowed


def _foretell(
    context: Context,
    updates: Sequence[Sequence[int]],
    first: Sums,
    group: Sequence[int],
    order: Sequence[str],
    step: int,
) -> tuple[dict[int, Array], bool]:
    """What the values are if some replicas fill their buffer in an order.

    Args:
        context: Of the phase.
        updates: Numbers of the values of each.
        first: What some replicas have of all variables in the first one.
        group: The replicas.
        order: Paths of the variables.
        step: -1 for a buffer whose last element comes first.

    Returns:
        Nothing once the largest value of an update is something else. And whether all
        pieces lie where they do in a buffer that is filled in the variables' order.
    """
    predicted: dict[int, Array] = {}
    is_whole = True
    for place, numbers in enumerate(updates):
        pieces = first
        if place:
            pieces = sum_all(context, numbers[0], order, group)
        filled = [path for path in order if path in pieces]
        if not filled:
            return {}, False
        buffer = np.concatenate([pieces[path] for path in filled])[::step]
        cut = [path for path in context.infos if path in pieces]
        for number in numbers:
            name = context.cases[number].key.variable
            due = find_place(pieces, cut, name)
            value, start = _take(context, number, group, buffer, due)
            is_own = step == 1 and start == find_place(pieces, filled, name)
            if value is not None and not is_own:
                predicted[number] = value
                is_whole &= start == due
            elif number == numbers[0]:
                return {}, False
    return predicted, is_whole


def _take(
    context: Context, number: int, group: Sequence[int], buffer: Array, due: int
) -> tuple[Array | None, int]:
    """A value with the piece of a buffer that it has, and where that begins.

    Args:
        context: Of the phase.
        number: Of the value.
        group: The replicas whose buffer it is.
        buffer: What they have of all variables, flat.
        due: Where a piece of this variable begins in the variables' order. Others may
            hold the same numbers.

    Returns:
        None where no piece is near.
    """
    case = context.cases[number]
    terms = context.find_terms(case)
    kept = [term for replica, term in enumerate(terms) if replica not in group]
    others = np.asarray(np.sum(kept, axis=0))
    wanted = np.asarray(case.observed - others).ravel()
    if not 0 < wanted.size <= buffer.size:
        return None, 0
    allowed = np.ravel(find_tolerance(case, context.replicas))
    start, piece = due, cut_piece(buffer, due, wanted.size)
    if np.any(np.abs(piece - wanted) > allowed):
        found = find_start(buffer, wanted, allowed)
        if found is None:
            return None, 0
        start, piece = found, cut_piece(buffer, found, wanted.size)
    near = comes_near(piece, wanted)
    return (others + piece.reshape(others.shape) if near else None), start
