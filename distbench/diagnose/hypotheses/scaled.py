"""Each replica's gradient times a number that a rule makes of it, and then the sum."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from distbench.compare.least_squares import solve_least_squares
from distbench.compare.values import Array
from distbench.diagnose.addends import ADDED, list_sources
from distbench.diagnose.context import Context, Hypothesis
from distbench.diagnose.fit import Row, fit_weights, leaves_nothing, predict_rows
from distbench.diagnose.names import name_replicas

_NEAR = 1e-3
"""Only asks whether fitted weights are alike, or 0; the values decide on them."""


def explain_by_numbers_of_each(context: Context) -> Iterator[Hypothesis]:
    """The addends of every value have weights of their own.

    So does a rule that divides each replica's gradient by what it measures of it, or
    takes its product with that of another, as Adasum does; and the sum of some of them
    that is clipped then. It has to hold for every value, and for some of far more
    numbers than are fitted: what has fewer may have any weights, so it is no objection.
    """
    if context.phase not in ADDED or context.replicas == 1:
        return
    predicted: dict[int, Array] = {}
    told: list[tuple[str, Array]] = []
    for source in list_sources(context):
        row = Row(
            number=source.number, target=source.case.observed, features=source.terms
        )
        fitted = fit_weights([row])
        if fitted is not None:
            told.append((source.case.key.variable, fitted))
        elif row.target.size < 2 * len(row.features):
            matrix = np.stack([term.ravel() for term in row.features], axis=1)
            target = row.target.ravel()
            fitted = solve_least_squares(matrix, target, determined=False)
        if fitted is None or not leaves_nothing([row], fitted):
            return
        predicted |= predict_rows([row], fitted)
    if told:
        yield from _name_weights(predicted, told)


def _name_weights(
    predicted: dict[int, Array], told: list[tuple[str, Array]]
) -> Iterator[Hypothesis]:
    """What weights say, by variable and step; nothing if the replicas count alike."""
    shares = [weights / np.max(np.abs(weights)) for _, weights in told]
    is_lost = np.all(np.abs(shares) <= _NEAR, axis=0)
    if all(np.ptp(share[~is_lost]) <= _NEAR for share in shares):
        if np.any(is_lost):
            lost = tuple(int(replica) for replica in np.flatnonzero(is_lost))
            yield Hypothesis(
                code="replica-dropped",
                predicted=predicted,
                detail=f"the sum lacks the gradient of {name_replicas(lost)}, and "
                "is scaled afterwards, as by a clip",
                replicas=lost,
            )
        return
    first, weights = told[0]
    yield Hypothesis(
        code="nonlinear-before-reduction",
        predicted=predicted,
        detail="each replica's gradient is scaled before the sum by a number that "
        f"differs by variable or step: in '{first}' they count "
        f"{', '.join(f'{weight:.4g}' for weight in weights)}",
    )
