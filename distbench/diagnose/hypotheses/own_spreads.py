"""Variances of all that are made of the replicas' own, and lack that of their means."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from distbench.compare.arrays.least_squares import fit_all, solve_least_squares
from distbench.compare.arrays.pair import Pair
from distbench.compare.arrays.ratio import SAME
from distbench.compare.arrays.values import Array, measure_norm
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.trace import WHOLE, SparseRows, Value, get_numbers

OF_OWN = "statistics-not-synchronized"
_LEAST_BEYOND = 4
"""So many numbers more than weights that are fitted: fewer are met by chance."""
_LEAST_REMOVED = 30
"""So many times less is left with the distances than without them. Any other numbers
remove some of what is left, and so much of it one time in 30⁴."""
_FEW = 64
"""So many numbers of a value are tried first, which rule out most variables."""


def explain_by_own_variances(context: Context) -> Iterator[Hypothesis]:
    """A sum of own variances v_r, where one device has that of all examples.

    That is Σ a_r v_r + b Σ n_r (m_r - m)², of means m_r which another variable is moved
    by: the means of shards lie apart. The sum that was seen has the first part alone,
    and a program that adds the second part before the sum has both.
    """
    if context.phase != "local_gradient" or context.replicas == 1:
        return
    found = [(part, _find_means(part)) for part in context.part_by_variable()]
    told = {part.cases[0].key.variable: means for part, means in found if means}
    if not told:
        return
    means = next(iter(told.values()))
    yield Hypothesis(
        code=OF_OWN,
        predicted={
            number: case.observed
            for number, case in context.list_cases()
            if case.key.variable in told
        },
        detail=f"it is made of the replicas' own variances, and lacks how far "
        f"their means, by which '{means}' is moved, are from the mean of all",
        phase="reduced_gradient",
        advice="Add the square of each replica's distance from the mean of all to its "
        "variance before these are averaged, or make the variance of the means of x "
        "and of x² over all replicas.",
    )


def _find_means(part: Context) -> str:
    """The variable whose gradients have the means that a variance lacks; else empty."""
    case = part.cases[0]
    names = [
        name
        for name, info in part.infos.items()
        if name != case.key.variable and info.shape == case.observed.shape
    ]
    for most in sorted({min(_FEW, case.observed.size), case.observed.size}):
        sums = _find_sums(part, most) if names else None
        if sums is None:
            return ""
        names = [name for name in names if _makes_up(part, name, sums, most)]
    return next(iter(names), "")


@dataclass(frozen=True, slots=True)
class _Sums:
    """Sums that are made of the replicas' own gradients, where due ones are not.

    Attributes:
        own: Each replica's own gradients, [numbers, replicas].
        due: What one device has, [numbers].
        left: How much of it these make up by no weights.
    """

    own: Array
    due: Array
    left: float


def _find_sums(part: Context, most: int) -> _Sums | None:
    """So many numbers of each value at most; None where they tell of nothing."""
    rows = [row for case in part.cases if (row := _find_sum(part, case)) is not None]
    if len(rows) < len(part.cases):
        return None
    own = np.concatenate(
        [np.stack([_pick(term, most) for term in terms], axis=1) for terms, _ in rows]
    )
    seen = np.concatenate([_pick(reduced, most) for _, reduced in rows])
    due = np.concatenate([_pick(case.expected, most) for case in part.cases])
    left = _measure_rest(own, due)
    if fit_all(own, seen, SAME) is None or left <= SAME * measure_norm(due):
        return None
    return _Sums(own, due, left)


def _makes_up(part: Context, name: str, sums: _Sums, most: int) -> bool:
    """Whether the distances of a variable's gradients are all that is left."""
    apart = _find_distances(part, name, most)
    if apart is None or len(sums.due) < part.replicas + 1 + _LEAST_BEYOND:
        return False
    rest = _measure_rest(np.column_stack([sums.own, apart]), sums.due)
    return rest <= min(SAME * measure_norm(sums.due), sums.left / _LEAST_REMOVED)


def _measure_rest(columns: Array, due: Array) -> float:
    """What no weights of columns make up: its norm; infinite if many do as well."""
    weights = solve_least_squares(columns, due)
    return np.inf if weights is None else measure_norm(due - columns @ weights)


def _pick(value: Value, most: int) -> Array:
    """So many numbers of a dense value at most, flat, from all over it."""
    numbers = get_numbers(value).ravel()
    places = np.linspace(0, max(numbers.size - 1, 0), min(most, numbers.size))
    return np.asarray(numbers[places.astype(np.int64)], np.float64)


def _find_sum(part: Context, case: Pair) -> tuple[Sequence[Array], Value] | None:
    """Each replica's own gradient, and the sum that was seen."""
    key = replace(case.key, phase="reduced_gradient", replica=0)
    reduced = part.evidence.observed.get(key)
    terms = part.find_terms(case)
    is_dense = case.rows is None and not isinstance(reduced, SparseRows)
    return (terms, reduced) if is_dense and reduced is not None and terms else None


def _find_distances(part: Context, name: str, most: int) -> Array | None:
    """Σ n_r (m_r - m)² of a variable's gradients."""
    found: list[Array] = []
    for case in part.cases:
        key = replace(case.key, variable=name)
        whole = part.evidence.reference.get(key.at(WHOLE))
        own = part.evidence.observed.get_replicas(key)
        if whole is None or not own:
            return None
        if any(isinstance(value, SparseRows) for value in (whole, *own)):
            return None
        distances = [_pick(one, most) - _pick(whole, most) for one in own]
        sizes = np.asarray(part.get_shards(case), np.float64)
        found.append(sizes @ np.square(distances))
    return np.concatenate(found)
