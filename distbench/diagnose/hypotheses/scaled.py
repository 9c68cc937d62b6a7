"""Each replica's gradient times a number that a rule makes of it, and then the sum."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from distbench.compare.arrays.least_squares import solve_least_squares
from distbench.compare.arrays.ratio import SAME, are_alike
from distbench.diagnose.clues.addends import ADDED, list_sources
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.fit import (
    Row,
    fit_weights,
    leaves_nothing,
    name_weights,
    predict_rows,
)
from distbench.diagnose.clues.hypothesis import NONLINEAR, Hypothesis
from distbench.diagnose.hypotheses.reduction import name_missing_sum
from distbench.diagnose.names import name_replicas
from distbench.trace import WHOLE, TraceKey
from distbench.trace.numbers import Array

Told = tuple[TraceKey, Array]
"""Where a value was seen, and by what its addends are weighed in it."""


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
    told: list[Told] = []
    for source in list_sources(context):
        row = Row(
            number=source.number, target=source.case.observed, features=source.terms
        )
        fitted = fit_weights([row])
        if fitted is not None:
            told.append((source.case.key, fitted))
        elif row.target.size < 2 * len(row.features):
            matrix = np.stack([term.ravel() for term in row.features], axis=1)
            target = row.target.ravel()
            fitted = solve_least_squares(matrix, target, determined=False)
        if fitted is None or not leaves_nothing([row], fitted):
            return
        predicted |= predict_rows([row], fitted)
    own = _find_own(told) if context.phase == "reduced_gradient" else ()
    if own and all(map(_is_alone, told)):
        yield _name_alone(context, predicted, own)
    elif own:
        yield _name_own(predicted, own)
    elif told:
        yield from _name_weights(predicted, told)


def _find_own(told: Sequence[Told]) -> Sequence[Told]:
    """The first value of which the replicas add up other sums, that should be one."""
    places: dict[TraceKey, list[Told]] = {}
    for key, weights in told:
        places.setdefault(key.at(WHOLE), []).append((key, weights))
    for found in places.values():
        rows = np.stack([weights for _, weights in found])
        if not are_alike(rows):
            return found
    return ()


def _is_alone(told: Told) -> bool:
    """Whether a replica's value holds its own gradient and no other."""
    key, weights = told
    others = np.delete(weights, key.replica)
    return key.replica != WHOLE and bool(
        np.all(np.abs(others) <= SAME * abs(weights[key.replica]))
    )


def _name_alone(
    context: Context, predicted: dict[int, Array], own: Sequence[Told]
) -> Hypothesis:
    """Nobody adds up what each replica makes of its own gradient."""
    words = ", ".join(
        f"{weights[key.replica] / context.times_share:.4g} on replica {key.replica}"
        for key, weights in own
    )
    return Hypothesis(
        code=name_missing_sum(context),
        predicted=predicted,
        detail="each replica goes on with its own gradient, times a number of its own: "
        f"in '{own[0][0].variable}' {words}",
    )


def _name_own(predicted: dict[int, Array], own: Sequence[Told]) -> Hypothesis:
    """What it is that the replicas make of one sum, each by numbers of its own."""
    is_scaled = all(are_alike(weights) for _, weights in own)
    what = "multiplies the sum by a number of its own, as its own norm gives,"
    if not is_scaled:
        what = "weighs all gradients by numbers of its own,"
    words = ", ".join(
        f"{name_weights(w[:1] if is_scaled else w)} on replica {key.replica}"
        for key, w in own
    )
    return Hypothesis(
        code="scale-error",
        predicted=predicted,
        detail=f"each replica {what} so that their sums differ: in "
        f"'{own[0][0].variable}' {words}",
    )


def _name_weights(
    predicted: dict[int, Array], told: Sequence[Told]
) -> Iterator[Hypothesis]:
    """What weights say, by variable and step; nothing if the replicas count alike."""
    shares = [weights / np.max(np.abs(weights)) for _, weights in told]
    is_lost = np.all(np.abs(shares) <= SAME, axis=0)
    if all(np.ptp(share[~is_lost]) <= SAME for share in shares):
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
        code=NONLINEAR,
        predicted=predicted,
        detail="each replica's gradient is scaled before the sum by a number that "
        f"differs by variable or step: in '{first.variable}' they count "
        f"{name_weights(weights)}",
    )
