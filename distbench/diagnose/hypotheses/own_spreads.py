"""Variances of all that are made of the replicas' own, and lack that of their means."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from distbench.compare.arrays.least_squares import fit_all, solve_least_squares
from distbench.compare.arrays.pair import Pair
from distbench.compare.arrays.ratio import SAME
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.trace import WHOLE, SparseRows
from distbench.trace.numbers import Array, densify, measure_norm

OF_OWN = "statistics-not-synchronized"
_LEAST_BEYOND = 4
"""So many numbers more than weights that are fitted: fewer are met by chance."""
_LEAST_REMOVED = 30
"""So many times less is left with the distances than without them. Any other numbers
remove some of what is left, and so much of it one time in 30⁴."""
_FEW = 64
"""So many numbers of a value are tried first, or a few for each weight of more: they
rule out most variables."""


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
            number: np.where(np.isfinite(case.observed), case.observed, case.expected)
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
    sums = _list_sums(part) if names else []
    few = max(_FEW, 4 * (part.replicas + 1))
    some = [one.pick(few) for one in sums]
    for tried in (some, sums) if some != sums else (sums,):
        lacking = _find_lacking(tried) if names else None
        if lacking is None:
            return ""
        names = [name for name in names if _makes_up(part, name, tried, lacking)]
    return next(iter(names), "")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Sum:
    """What was seen of a wrong value, and some of its numbers, or all.

    Attributes:
        case: The wrong value.
        own: Of each replica's own gradient, [numbers] each.
        seen: Of what they were reduced to, [numbers].
        due: Of what one device has, [numbers].
        places: Which of the numbers of the value, made flat.
    """

    case: Pair
    own: tuple[Array, ...]
    seen: Array
    due: Array
    places: npt.NDArray[np.intp] | slice

    def pick(self, count: int) -> _Sum:
        """So many numbers at most: those in which most is lacking."""
        if self.due.size <= count:
            return self
        gap = np.abs(self.due - self.seen)
        return self.take(np.argpartition(gap, -count)[-count:])

    def take(self, places: npt.NDArray[np.intp]) -> _Sum:
        """Some of these numbers, by their places among them."""
        every = self.places
        return replace(
            self,
            own=tuple(one[places] for one in self.own),
            seen=self.seen[places],
            due=self.due[places],
            places=places if isinstance(every, slice) else every[places],
        )


@dataclass(frozen=True, slots=True)
class _Lacking:
    """Sums that are made of the replicas' own gradients, where due ones are not.

    Attributes:
        own: Each replica's own gradients, [numbers, replicas].
        due: What one device has, [numbers].
        left: How much of it these make up by no weights.
    """

    own: Array
    due: Array
    left: float


def _list_sums(part: Context) -> list[_Sum]:
    """All numbers of each wrong value; empty where not all were seen."""
    found = [one for case in part.cases if (one := _find_sum(part, case)) is not None]
    return found if len(found) == len(part.cases) else []


def _find_sum(part: Context, case: Pair) -> _Sum | None:
    """Each replica's own gradient, and the sum that was seen, if these are dense."""
    key = replace(case.key, phase="reduced_gradient", replica=0)
    reduced = part.evidence.observed.get(key)
    terms = part.find_terms(case)
    is_dense = case.rows is None and not isinstance(reduced, SparseRows)
    if not is_dense or reduced is None or not terms:
        return None
    own = tuple(term.ravel() for term in terms)
    seen, due = densify(reduced).ravel(), case.expected.ravel()
    one = _Sum(case=case, own=own, seen=seen, due=due, places=slice(None))
    # What overflows says nothing of the others.
    is_known = np.all([np.isfinite(array) for array in (*own, seen, due)], axis=0)
    return one if is_known.all() else one.take(np.flatnonzero(is_known))


def _find_lacking(sums: Sequence[_Sum]) -> _Lacking | None:
    """What due sums have beside own gradients; None where they tell of nothing."""
    if not sums:
        return None
    own = np.concatenate([np.stack(one.own, axis=1) for one in sums])
    seen = np.concatenate([one.seen for one in sums])
    due = np.concatenate([one.due for one in sums])
    left = _measure_rest(own, due)
    if fit_all(own, seen, SAME) is None or left <= SAME * measure_norm(due):
        return None
    return _Lacking(own, due, left)


def _makes_up(
    part: Context, name: str, sums: Sequence[_Sum], lacking: _Lacking
) -> bool:
    """Whether the distances of a variable's gradients are all that is left."""
    due = lacking.due
    apart = _find_distances(part, name, sums)
    if apart is None or len(due) < part.replicas + 1 + _LEAST_BEYOND:
        return False
    rest = _measure_rest(np.column_stack([lacking.own, apart]), due)
    return rest <= min(SAME * measure_norm(due), lacking.left / _LEAST_REMOVED)


def _measure_rest(columns: Array, due: Array) -> float:
    """What no weights of columns make up: its norm; infinite if many do as well."""
    weights = solve_least_squares(columns, due)
    return np.inf if weights is None else measure_norm(due - columns @ weights)


def _find_distances(part: Context, name: str, sums: Sequence[_Sum]) -> Array | None:
    """Σ n_r (m_r - m)² of a variable's gradients."""
    found: list[Array] = []
    for one in sums:
        key = replace(one.case.key, variable=name)
        whole = part.evidence.reference.get(key.at(WHOLE))
        own = part.evidence.observed.get_replicas(key)
        if whole is None or not own:
            return None
        if any(isinstance(value, SparseRows) for value in (whole, *own)):
            return None
        mean, *means = (densify(value).ravel()[one.places] for value in (whole, *own))
        sizes = np.asarray(part.get_shards(one.case), np.float64)
        found.append(sizes @ np.square([each - mean for each in means]))
    return np.concatenate(found)
