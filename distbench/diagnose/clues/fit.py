"""Least squares over several wrong values at once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from distbench.compare.arrays.least_squares import solve_least_squares, stack_scaled
from distbench.compare.arrays.pair import Pair
from distbench.compare.arrays.ratio import SAME, RatioFit, fit_common_ratio
from distbench.trace.numbers import Array, measure_size


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Row:
    """What one value contributes: target ≈ Σ_k weight_k · features_k."""

    number: int
    target: Array
    features: tuple[Array, ...]


def make_error(number: int, case: Pair, *features: Array) -> Row:
    """What a value is wrong by, to be fitted."""
    target = case.observed - case.expected
    return Row(number=number, target=target, features=features)


def list_step_errors(cases: Iterable[tuple[int, Pair]]) -> list[Row]:
    """What values are wrong by, to be fitted as a multiple of the step that is due."""
    return [
        make_error(number, case, np.asarray(case.expected - case.base))
        for number, case in cases
    ]


def fit_cases(cases: Iterable[Pair]) -> RatioFit | None:
    """One ratio of observed to expected over all cases that are finite.

    Of state it is that of the changes; None where there is none.
    """
    return fit_common_ratio(
        (case.observed - case.base, case.expected - case.base)
        for case in cases
        if np.isfinite(case.observed).all() and np.isfinite(case.expected).all()
    )


def fit_weights(rows: Sequence[Row]) -> Array | None:
    """One weight for each feature, shared by all rows; every row weighs alike.

    None where the features do not determine the weights, or where there are fewer
    than two numbers for each weight: such a fit would explain anything. What all
    replicas hold alike counts once.
    """
    stacked = stack_scaled(
        (row.target, row.features, size)
        for row in rows
        if 0 < (size := max(map(measure_size, (row.target, *row.features)))) < math.inf
    )
    if stacked is None:
        return None
    matrix, target = stacked
    if not _are_enough(np.column_stack((matrix, target)), 2 * matrix.shape[1]):
        return None
    return solve_least_squares(matrix, target)


def _are_enough(equations: Array, count: int) -> bool:
    """Whether so many of them differ; of large values the first ones show it."""
    first = equations[: 16 * count]
    return any(len(np.unique(some, axis=0)) >= count for some in (first, equations))


def name_weights(weights: Sequence[float] | Array) -> str:
    """Fitted numbers in a sentence, `0.25, 1, 0`; what rounding leaves of 0 is 0."""
    least = SAME * max(map(abs, weights), default=0.0)
    return ", ".join(f"{w if abs(w) > least else 0.0:.4g}" for w in weights)


def add_weighted(weights: Sequence[float] | Array, terms: Sequence[Array]) -> Array:
    """Σ_k weight_k · term_k, of at least one."""
    total = np.zeros_like(terms[0])
    for weight, term in zip(weights, terms, strict=True):
        total = total + weight * term
    return total


def predict_rows(rows: Sequence[Row], weights: Array) -> dict[int, Array]:
    """What the fit says for each row's target, by its number."""
    return {row.number: add_weighted(weights, row.features) for row in rows}


def predict_cases(
    cases: Sequence[Pair], errors: Sequence[Row], weights: Array
) -> dict[int, Array]:
    """What the values are by a fit of their errors, by their numbers."""
    fits = predict_rows(errors, weights)
    return {number: cases[number].expected + error for number, error in fits.items()}


def leaves_nothing(rows: Sequence[Row], weights: Array) -> bool:
    """Whether a fit explains every row's target to a thousandth."""
    fits = predict_rows(rows, weights)
    return all(
        float(np.max(np.abs(fits[row.number] - row.target), initial=0.0))
        <= SAME * float(np.max(np.abs(row.target), initial=0.0))
        for row in rows
    )


def pick_features(row: Row, places: Sequence[int]) -> Row:
    """A row with some of its features."""
    return replace(row, features=tuple(row.features[i] for i in places))


def drop_empty(rows: Sequence[Row], place: int) -> list[Row]:
    """Rows without a feature that is 0 in all of them, as what is there before a start.

    Nothing tells its weight.
    """
    if any(np.any(row.features[place]) for row in rows):
        return list(rows)
    kept = [i for i in range(len(rows[0].features)) if i != place] if rows else []
    return [pick_features(row, kept) for row in rows]


def list_independent(rows: Sequence[Row], first: int) -> list[int]:
    """Places of the features that those before them do not determine.

    Args:
        rows: All with as many features.
        first: How many are kept in any case.
    """
    kept = list(range(first))
    for place in range(first, len(rows[0].features)):
        tried = [pick_features(row, (*kept, place)) for row in rows]
        if fit_weights(tried) is not None:
            kept.append(place)
    return kept
