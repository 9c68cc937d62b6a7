"""A loss of several terms, of which some are scaled wrongly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from distbench.compare.values import Array
from distbench.diagnose.context import Context, Hypothesis, take_rows
from distbench.diagnose.fit import Row, add_weighted, fit_weights
from distbench.trace import WHOLE

_NEAR = 1e-3
"""How near a fitted factor lies to the number that it is."""


def explain_by_terms(context: Context) -> Iterator[Hypothesis]:
    """Each term of the loss has one factor in the sum of all gradients.

    One device tells what each of them gives alone, whatever kind of term it is. All
    variables and steps have to agree on the factors.
    """
    terms = context.evidence.terms
    if not context.root or context.phase == "loss" or context.replicas == 1:
        return
    rows = [
        Row(number=number, target=case.observed, features=features)
        for number, case in context.list_cases()
        if case.key.replica == WHOLE
        and (features := _list_features(context, number)) is not None
    ]
    if not terms or len(rows) < len(context.cases):
        return
    factors = fit_weights(rows)
    if factors is None:
        return
    found = [_snap(float(factor), context.replicas) for factor in factors]
    wrong = [factor for factor in found if factor != 1]
    if not 0 < len(wrong) < len(found):
        return  # a factor of all terms is that of the loss
    code, _ = _name(wrong[0], context.replicas)
    yield Hypothesis(
        code=code,
        predicted={row.number: add_weighted(found, row.features) for row in rows},
        detail=_describe(found, context.replicas),
        ratio=wrong[0],
    )


def _list_features(context: Context, number: int) -> tuple[Array, ...] | None:
    """What each term alone gives for a value."""
    case = context.cases[number]
    found = [term.get(case.key) for term in context.evidence.terms]
    known = [take_rows(value, case) for value in found if value is not None]
    return tuple(known) if len(known) == len(found) else None


def _snap(factor: float, replicas: int) -> float:
    """The factor that users make by mistake, where it is one but for rounding."""
    for known in (1.0, float(replicas), 1 / replicas, 0.0):
        if abs(factor - known) <= _NEAR * max(known, _NEAR):
            return known
    return factor


def _name(factor: float, replicas: int) -> tuple[str, str]:
    """Code and words of a factor."""
    if factor == replicas:
        return "loss-not-scaled", f"N = {replicas} times"
    if factor == 1 / replicas:
        return "loss-scaled-twice", f"1/N = 1/{replicas} of"
    return "scale-error", f"{factor:.6g} times"


def _describe(found: Sequence[float], replicas: int) -> str:
    told = [
        f"number {place} counts {_name(factor, replicas)[1]} what it should"
        for place, factor in enumerate(found, 1)
        if factor != 1
    ]
    return (
        f"of the {len(found)} terms of the loss, in the order in which they are added "
        "up, " + " and ".join(told)
    )
