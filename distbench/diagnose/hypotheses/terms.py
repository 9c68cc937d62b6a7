"""A loss of several terms, of which some are scaled wrongly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from distbench.compare.arrays.ratio import SAME, are_alike, are_near
from distbench.diagnose.clues.cases import take_rows
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.fit import Row, add_weighted, fit_weights
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.trace import WHOLE, SparseRows, Trace, Value
from distbench.trace.numbers import Array, densify

_ROUNDED = 1e-5
"""Share of itself by which a factor that is fitted to many numbers may be off."""


def explain_by_terms(context: Context) -> Iterator[Hypothesis]:
    """Each term of the loss has one factor in the sum of all gradients.

    One device tells what each of them gives alone, whatever kind of term it is. All
    variables and steps have to agree on the factors.
    """
    rows = list_terms_of_cases(context)
    factors = fit_weights(rows)
    if factors is None:
        return
    found = [_snap(float(factor), context.replicas) for factor in factors]
    if are_alike(found):
        return
    wrong = {place: factor for place, factor in enumerate(found) if factor != 1}
    code, _ = _name(next(iter(wrong.values())), context.replicas)
    terms = context.evidence.terms
    if code == "loss-not-scaled" and all(_is_penalty(terms[place]) for place in wrong):
        code = "regularizer-not-scaled"
    yield Hypothesis(
        code=code,
        predicted={row.number: add_weighted(found, row.features) for row in rows},
        detail=_describe(found, context.replicas),
        ratio=next(iter(wrong.values())),
    )


def explain_by_terms_of_steps(context: Context) -> Iterator[Hypothesis]:
    """The same with other factors in each step: what a term is divided by is wrong."""
    steps: dict[int, list[Row]] = {}
    for row in list_terms_of_cases(context):
        steps.setdefault(context.cases[row.number].key.step, []).append(row)
    fitted = [
        found for here in steps.values() if (found := fit_weights(here)) is not None
    ]
    if not 1 < len(fitted) == len(steps):
        return
    columns = [_snap_all(column, context.replicas) for column in np.stack(fitted).T]
    if are_alike(columns):
        return
    wrong = [column for column in columns if any(factor != 1 for factor in column)]
    yield Hypothesis(
        code="scale-error",
        predicted={
            row.number: add_weighted(
                [column[place] for column in columns], row.features
            )
            for place, here in enumerate(steps.values())
            for row in here
        },
        detail=_describe(columns, context.replicas),
        ratio=wrong[0][0],
    )


def list_terms_of_cases(context: Context) -> list[Row]:
    """What the terms give for each wrong sum, to be fitted to what was observed.

    Empty unless that is known of all of them.
    """
    if not context.root or context.phase == "loss" or context.replicas == 1:
        return []
    rows = [
        Row(number=number, target=case.observed, features=features)
        for number, case in context.list_cases()
        if case.key.replica == WHOLE and (features := _list_features(context, number))
    ]
    return rows if len(rows) == len(context.cases) else []


def _list_features(context: Context, number: int) -> tuple[Array, ...]:
    """What each term alone gives for a value; empty where that is not known."""
    case = context.cases[number]
    found = [term.get(case.key) for term in context.evidence.terms]
    known = [take_rows(value, case) for value in found if value is not None]
    return tuple(known) if len(known) == len(found) else ()


def _is_penalty(term: Trace) -> bool:
    """Whether each shard gives what the global batch does: no example is in it."""
    pairs = [
        (whole, term.get(key.at(replica)))
        for key, whole in term.select(phase="local_gradient", replica=WHOLE)
        for replica in range(term.replicas)
    ]
    return bool(pairs) and all(_are_near(*pair) for pair in pairs)


def _are_near(value: Value, other: Value | None) -> bool:
    """Whether dense gradients are alike; of rows that says little."""
    if other is None or isinstance(value, SparseRows) or isinstance(other, SparseRows):
        return False
    whole = densify(value)
    return are_near(whole, densify(other), whole)


def _snap(factor: float, replicas: int) -> float:
    """The factor that users make by mistake, where it is one but for rounding.

    Any other whole number is none of these: of large ones some lie within a thousandth
    of whatever was fitted.
    """
    for known in (1.0, float(replicas), 1 / replicas, 0.0):
        if abs(factor - known) <= SAME * max(known, SAME):
            return known
    whole = float(round(factor))
    return whole if abs(factor - whole) <= _ROUNDED * abs(whole) else factor


def _snap_all(factors: Sequence[float], replicas: int) -> tuple[float, ...]:
    """The factors of a term in all steps, which are one number but for rounding or not.

    One that varies may come as near to a known number as rounding does.
    """
    found = {_snap(float(factor), replicas) for factor in factors}
    return (
        tuple(found) * len(factors) if len(found) == 1 else tuple(map(float, factors))
    )


def _name(factor: float, replicas: int) -> tuple[str, str]:
    """Code and words of a factor."""
    if factor == replicas:
        return "loss-not-scaled", f"N = {replicas} times"
    if factor == 1 / replicas:
        return "loss-scaled-twice", f"1/N = 1/{replicas} of"
    return "scale-error", f"{factor:.6g} times"


def _describe(found: Sequence[float | Sequence[float]], replicas: int) -> str:
    """Which terms are wrong by what factor, or by what factors step by step."""
    places: dict[str, list[int]] = {}
    for place, factor in enumerate(found, 1):
        if np.any(np.not_equal(factor, 1)):
            places.setdefault(_tell(factor, replicas), []).append(place)
    told = [
        f"{_count(numbers)} {words} what it should" for words, numbers in places.items()
    ]
    steps = "" if np.ndim(found[0]) == 0 else ", step by step"
    return (
        f"of the {len(found)} terms of the loss, in the order in which they are added "
        "up, " + " and ".join(told) + steps
    )


def _count(numbers: Sequence[int]) -> str:
    *first, last = map(str, numbers)
    if not first:
        return f"number {last} counts"
    return f"each of numbers {', '.join(first)} and {last} counts"


def _tell(factor: float | Sequence[float], replicas: int) -> str:
    if isinstance(factor, float):
        return _name(factor, replicas)[1]
    return ", ".join(f"{step:.6g}" for step in factor) + " times"
