"""Sparse gradients whose values stand beside the indices of other slices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from distbench.compare.arrays.pair import Pair
from distbench.diagnose.clues.cases import take_rows
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.diagnose.hypotheses.slices import (
    add_rows,
    find_slices,
    gather_rows,
    join_slices,
)
from distbench.trace import GRADIENTS, WHOLE, SparseRows
from distbench.trace.numbers import Array

Slices = tuple[SparseRows, ...]
Order = npt.NDArray[np.int64]
"""Which slice comes at each place, of those of all replicas by rank."""

_FORMS: dict[str, Callable[[Slices], Slices]] = {
    "slices": lambda slices: slices,
    "each replica's rows, added up in the order of their first slices,": (
        lambda slices: tuple(map(gather_rows, slices))
    ),
    "each replica's rows, added up in the order of their numbers,": (
        lambda slices: tuple(map(add_rows, slices))
    ),
    "rows, added up in the order of their first slices,": (
        lambda slices: (gather_rows(join_slices(slices)),)
    ),
}
"""As what slices may be put in order: repeated rows may be added up before."""


def explain_by_mispaired_slices(context: Context) -> Iterator[Hypothesis]:
    """Values and indices of all slices are put in order apart from each other.

    All values arrive, and all indices: g = Σ_k value_k at index_π(k). Some order or
    other gives nearly any gradient, so these few have to give every case to the last
    digit.
    """
    if context.phase not in GRADIENTS:
        return
    found = {n: find_slices(context, case) for n, case in context.list_cases()}
    if not found or not all(found.values()):
        return
    first = min(found)
    for what, form in _FORMS.items():
        forms = {number: form(slices) for number, slices in found.items()}
        shift = _find_shift(join_slices(forms[first]), context.cases[first])
        for words in _list_orders(forms[first], context.cases[first], shift):
            for side, other in (("indices", "values"), ("values", "indices")):
                predicted = _predict(context, forms, words, side, shift)
                if predicted is not None:
                    yield Hypothesis(
                        code="sparse-rows",
                        predicted=predicted,
                        detail=f"{what} have the indices of others: their {side} are "
                        f"{words}, their {other} are not",
                    )


def _predict(
    context: Context,
    forms: Mapping[int, Slices],
    words: str,
    side: str,
    shift: int,
) -> dict[int, Array] | None:
    """What comes of an order; None once a case has something else."""
    predicted = {}
    for number, slices in forms.items():
        case, whole = context.cases[number], join_slices(slices)
        order = _list_orders(slices, case, shift).get(words)
        if order is None:
            return None
        moved = replace(whole, **{side: getattr(whole, side)[order]})
        predicted[number] = take_rows(moved, case)
        if not context.matches(case, predicted[number]):
            return None
    return predicted


def _list_orders(slices: Slices, case: Pair, shift: int) -> dict[str, Order]:
    """The orders in which slices may come but for that of the ranks, with their names.

    Args:
        slices: Those of each replica.
        case: The value, of the replica that puts them in order, or of all.
        shift: A number of places by which they may be turned.
    """
    indices = join_slices(slices).indices
    places = np.arange(len(indices))
    counts = [len(part.indices) for part in slices]
    blocks = np.split(places, np.cumsum(counts)[:-1])
    own, n = case.key.replica, len(slices)
    is_own = n > 1 and own != WHOLE

    def gather(ranks: Sequence[int]) -> Order:
        return np.concatenate([blocks[rank % n] for rank in ranks])

    def sort(some: Order) -> Order:
        return some[np.argsort(indices[some], kind="stable")]

    orders = {
        f"gathered from replica {first} on": gather(range(first, first + n))
        for first in range(1, n)
    }
    orders["gathered last replica first"] = gather(range(n)[::-1])
    if is_own:
        orders["gathered own replica first"] = gather(range(own, own + n))
    orders["sorted by row"] = sort(places)
    orders["sorted by row in each replica"] = np.concatenate([*map(sort, blocks)])
    orders["in reverse"] = places[::-1]
    orders[f"turned by {shift}"] = np.roll(places, shift)
    if is_own:
        words = "turned by as many as each replica has itself"
        orders[words] = np.roll(places, counts[own])
    return orders


def _find_shift(slices: SparseRows, case: Pair) -> int:
    """The number of places by which indices are turned, if that is what is wrong.

    One number u'Gv of a gradient G, with random u and v, tells the turns apart; of all
    turns at once it is a circular correlation.
    """
    count = len(slices.indices)
    if not count:
        return 0
    random = np.random.default_rng(0)
    seen = case.observed.reshape(len(case.observed), -1)
    rows = np.arange(len(seen)) if case.rows is None else case.rows.astype(np.int64)
    left = np.zeros(slices.shape[0])
    left[rows] = random.normal(size=len(rows))
    right = random.normal(size=seen.shape[1])
    values = np.asarray(slices.values, np.float64).reshape(count, -1) @ right
    spectrum = np.fft.fft(values) * np.conj(np.fft.fft(left[slices.indices]))
    rest = np.abs(np.fft.ifft(spectrum).real - left[rows] @ seen @ right)
    shift = int(np.argmin(rest))
    return shift if 2 * shift <= count else shift - count
