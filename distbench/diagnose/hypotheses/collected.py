"""Gradients that are collected over steps, and not cleared when they are due."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from distbench.compare.arrays.pair import Pair
from distbench.compare.arrays.ratio import fit_ratio
from distbench.diagnose.clues.cases import carry_rows, take_rows
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.trace import GRADIENTS, STATE, WHOLE, TraceKey
from distbench.trace.numbers import Array

UNCLEARED = (
    "one device clears it in this step, and here it keeps what it has collected, which "
    "is the sum of the gradients of several steps: those of the next ones are added"
)


def explain_by_running_sum(context: Context) -> Iterator[Hypothesis]:
    """What is due, and all that was due in the steps before: nobody cleared it."""
    if context.phase not in GRADIENTS:
        return
    wrong = {case.key: case for case in context.cases}
    predicted: dict[int, Array] = {}
    for number, case in context.list_cases():
        earlier = [
            _find_due(context, wrong, case, step) for step in range(case.key.step)
        ]
        if earlier and all(value is not None for value in earlier):
            total = np.sum([v for v in earlier if v is not None], axis=0)
            predicted[number] = case.expected + total
    words = "what collects gradients is never cleared"
    if any(np.any(v != context.cases[n].expected) for n, v in predicted.items()):
        yield Hypothesis(
            code="stale-gradient",
            predicted=predicted,
            detail=f"those of all steps before are in it: {words}",
            of_due=True,
        )
    for replica in range(context.replicas):
        found = {
            number: case.expected + before
            for number, case in context.list_cases()
            if (before := _find_held(context, case, replica)) is not None
        }
        if found:
            yield Hypothesis(
                code="stale-gradient",
                predicted=found,
                detail=f"what replica {replica} had a step before is in it as well: "
                f"{words} there",
                replicas=(replica,),
            )


def _find_held(context: Context, case: Pair, replica: int) -> Array | None:
    """The gradient of one replica that is in a sum, as it was a step before."""
    if case.key.step == 0 or case.key.replica != WHOLE:
        return None
    key = replace(case.key, step=case.key.step - 1, replica=replica)
    value = context.evidence.observed.get(key)
    return None if value is None else take_rows(value, case)


def _find_due(
    context: Context, wrong: Mapping[TraceKey, Pair], case: Pair, step: int
) -> Array | None:
    """What a value should have been in another step, in the rows of a case."""
    key = replace(case.key, step=step)
    if key in wrong:
        due = wrong[key]
        shape = case.expected.shape
        found = carry_rows(due.expected, due.rows, case.rows, shape)
        return found if found.shape == shape else None
    for trace, place in (
        (context.evidence.observed, key),
        (context.evidence.reference, key),
        (context.evidence.reference, key.at(WHOLE)),
    ):
        value = trace.get(place)
        if value is not None:
            return take_rows(value, case)
    return None


def explain_by_uncleared(context: Context) -> Iterator[Hypothesis]:
    """State that one device clears holds a sum of gradients of this and other steps."""
    if context.phase not in STATE:
        return
    cases = list(context.list_cases())
    if any(np.any(case.expected) for _, case in cases):
        return
    predicted = foretell_collected(context, [case for _, case in cases])
    if predicted is None:
        return
    yield Hypothesis(
        code="stale-gradient",
        predicted={
            number: value for (number, _), value in zip(cases, predicted, strict=True)
        },
        detail=UNCLEARED,
    )


def foretell_collected(
    context: Context, cases: Sequence[Pair], *, own: bool = False
) -> list[Array] | None:
    """The sums of gradients that values hold, if it is such that all of them hold.

    Each is that of some steps up to its own, of a variable of its shape, times one
    number for all of them, which the value with most elements tells.

    Args:
        context: Has the gradients.
        cases: The values, as observed.
        own: Whether of the replica's own gradients, and not of all replicas'.
    """
    factor: float | None = None
    found: dict[int, Array] = {}
    for number in sorted(range(len(cases)), key=lambda n: -cases[n].observed.size):
        case = cases[number]
        for total in _list_collected(context, case, own):
            if factor is None and case.observed.size > 1:
                fit = fit_ratio(case.observed, total)
                tried = 0.0 if fit is None else fit.ratio
            else:
                tried = factor or 0.0
            if tried and context.matches(case, tried * total):
                factor, found[number] = tried, tried * total
                break
        else:
            return None
    return [found[number] for number in range(len(cases))]


def _list_collected(context: Context, case: Pair, own: bool) -> Iterator[Array]:
    """Sums of the gradients of two and more steps, up to that of a case."""
    for info in context.infos.values():
        if info.role != "variable" or info.shape != case.observed.shape:
            continue
        total: Array | None = None
        for step in range(case.key.step, -1, -1):
            terms = context.find_terms_of(case, info.path, step)
            if not terms:
                break
            added = terms[case.key.replica] if own else np.sum(terms, axis=0)
            if total is not None:
                total = total + added
                yield total
            else:
                total = np.asarray(added)
