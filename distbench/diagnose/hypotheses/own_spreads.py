"""Variances of all that are made of the replicas' own, and lack that of their means."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from distbench.compare.arrays.least_squares import fit_all
from distbench.compare.arrays.pair import Pair
from distbench.compare.arrays.ratio import SAME
from distbench.compare.arrays.values import Array, densify
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.trace import WHOLE

OF_OWN = "statistics-not-synchronized"
_LEAST_BEYOND = 4
"""So many numbers more than weights that are fitted: fewer are met by chance."""


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
    rows = [row for case in part.cases if (row := _find_sum(part, case)) is not None]
    if len(rows) < len(part.cases):
        return ""
    own = np.concatenate([np.stack(terms, axis=1) for terms, _ in rows])
    seen = np.concatenate([reduced for _, reduced in rows])
    due = np.concatenate([np.ravel(case.expected) for case in part.cases])
    if fit_all(own, seen, SAME) is None or fit_all(own, due, SAME) is not None:
        return ""
    for name, info in part.infos.items():
        case = part.cases[0]
        if name == case.key.variable or info.shape != case.observed.shape:
            continue
        apart = _find_distances(part, name)
        if apart is None or len(due) < part.replicas + 1 + _LEAST_BEYOND:
            continue
        if fit_all(np.column_stack([own, apart]), due, SAME) is not None:
            return name
    return ""


def _find_sum(part: Context, case: Pair) -> tuple[list[Array], Array] | None:
    """Each replica's own gradient, flat, and the sum that was seen."""
    key = replace(case.key, phase="reduced_gradient", replica=0)
    reduced = part.evidence.observed.get(key)
    terms = part.find_terms(case)
    if case.rows is not None or reduced is None or not terms:
        return None
    return [np.ravel(term) for term in terms], np.ravel(densify(reduced))


def _find_distances(part: Context, name: str) -> Array | None:
    """Σ n_r (m_r - m)² of a variable's gradients."""
    found: list[Array] = []
    for case in part.cases:
        key = replace(case.key, variable=name)
        whole = part.evidence.reference.get(key.at(WHOLE))
        own = part.evidence.observed.get_replicas(key)
        if whole is None or not own:
            return None
        distances = [np.ravel(densify(one) - densify(whole)) for one in own]
        sizes = np.asarray(part.get_shards(case), np.float64)
        found.append(sizes @ np.square(np.asarray(distances, np.float64)))
    return np.concatenate(found)
