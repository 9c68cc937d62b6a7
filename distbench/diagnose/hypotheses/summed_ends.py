"""Where state goes a part of its way to, added up over the replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from distbench.compare.arrays.pair import Pair
from distbench.compare.state.leading import has_gradient, is_trained
from distbench.diagnose.clues.cases import find_base, take_rows
from distbench.diagnose.clues.context import Context, Numbered
from distbench.diagnose.clues.fit import Row, fit_weights
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.trace.numbers import Array

_LEAST = 1e-3
"""Of a share of an old value that is no larger nothing is known: it may be rounding."""
_ADVICE = (
    "Each replica has all of it, or a mean of its own: take the mean of what they have "
    "(all_reduce MEAN), or divide the sum by N."
)
_OWN_ADVICE = (
    "Add up what each replica has of the sum, and of the count of examples "
    "(all_reduce), and divide one by the other."
)
_Find = Callable[[Pair], Array]


def explain_by_summed_ends(context: Context) -> Iterator[Hypothesis]:
    """What state without a gradient goes to is a sum, and its old value is kept once.

    One device leaves e = κ b + x, where b is the value before the step and x what it
    follows. Of equal x on all replicas a sum leaves κ b + N x = N e - (N - 1) κ b; of
    what each makes of its own examples, s_r = κ b + x_r on one device, it leaves
    Σ s_r - (N - 1) κ b. What is followed need not be seen: κ alone is fitted. A trained
    variable that is set to what came out, as Lookahead does, has it as well.
    """
    n = context.replicas
    if n == 1 or context.phase != "variable":
        return
    equal = _predict(context, lambda case: n * case.expected)
    if equal:
        yield Hypothesis(
            code="scale-error",
            predicted={**equal, **_list_set_to(context, equal)},
            detail=f"what it goes a part of the way to is {n} times as large: what the "
            "replicas have of it each is added up, and not averaged",
            ratio=float(n),
            advice=_ADVICE,
        )
    own = _predict(context, lambda case: _add_shards(context, case))
    if own:
        yield Hypothesis(
            code="statistics-not-synchronized",
            predicted=own,
            detail="what it goes a part of the way to, or adds, is the sum of what "
            "each replica makes of its own examples, and on one device it is no sum",
            advice=_OWN_ADVICE,
        )


def _predict(
    context: Context, find_total: Callable[[Pair], Array | None]
) -> dict[int, Array]:
    """What is left of a total whose old value counts once.

    Args:
        context: The wrong values.
        find_total: N old values with all that is added, if that is known.
    """
    predicted: dict[int, Array] = {}
    for path, cases in context.group_cases(lambda case: case.key.variable).items():
        if has_gradient(context.evidence, path):
            continue
        totals = {
            number: total
            for number, case in cases
            if (total := find_total(case)) is not None
        }
        if len(totals) < len(cases):
            continue
        kept = _fit_kept(context, cases, totals, lambda case: case.observed)
        is_due = _fit_kept(context, cases, totals, lambda case: case.expected)
        if kept is None or is_due is not None:  # what is due is a sum
            continue
        for number, case in cases:
            more = (context.replicas - 1) * find_base(case)
            predicted[number] = totals[number] - kept * more
    return predicted


def _fit_kept(
    context: Context,
    cases: Sequence[Numbered],
    totals: Mapping[int, Array],
    held: _Find,
) -> float | None:
    """κ, where totals without all old values but one are what is held.

    Steps that are nearly N times as long come near, with another number.
    """
    more = {n: (context.replicas - 1) * find_base(case) for n, case in cases}
    rows = [
        Row(number=n, target=totals[n] - held(case), features=(more[n],))
        for n, case in cases
    ]
    weights = fit_weights(rows)
    if weights is None:
        return None
    kept = float(weights[0])
    is_told = all(
        context.are_near(case, totals[n] - kept * more[n], held(case))
        for n, case in cases
    )
    return kept if is_told and _LEAST < kept < 1 + _LEAST else None


def _add_shards(context: Context, case: Pair) -> Array | None:
    """What shards alone leave, added up; None where gradients lead."""
    if is_trained(context.evidence, case.key.variable):
        return None
    shards = context.evidence.reference.get_replicas(case.key)
    if len(shards) < context.replicas:
        return None
    return np.asarray(sum(take_rows(value, case) for value in shards))


def _list_set_to(context: Context, found: Mapping[int, Array]) -> dict[int, Array]:
    """The same for variables that were set to one for which it is known."""
    return {
        number: found[source]
        for number, case in context.list_cases()
        if number not in found
        and (source := _find_source(context, case, found)) is not None
    }


def _find_source(
    context: Context, case: Pair, numbers: Mapping[int, Array]
) -> int | None:
    """The one of some cases whose value another variable was set to."""
    for number in numbers:
        other = context.cases[number]
        if other.key != replace(case.key, variable=other.key.variable):
            continue
        # What is due is known from two runs of one device, which round otherwise.
        if np.array_equal(other.observed, case.observed) and context.are_near(
            case, other.expected, case.expected
        ):
            return number
    return None
