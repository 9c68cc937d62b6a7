"""What every replica assigns or adds is added up over the replicas."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from distbench.compare.arrays.pair import Pair
from distbench.compare.state.leading import has_gradient
from distbench.diagnose.clues.cases import find_base, take_rows
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.hypothesis import NONLINEAR, Hypothesis
from distbench.diagnose.hypotheses.by_hand import list_alone
from distbench.diagnose.hypotheses.old_values import explain_by_old_values
from distbench.diagnose.hypotheses.slot_facts import keeps_gradients
from distbench.trace import UPDATED
from distbench.trace.numbers import Array

_OWN_GRADIENTS = (
    "it holds the sum of what each replica makes of its own gradients, as where each "
    "clips them before they are summed"
)
_ADVICE = "What all replicas assign alike has aggregation MEAN or ONLY_FIRST_REPLICA."
_COPIES_ADVICE = (
    "What all replicas hold alike already must not be added up over them: leave it as "
    "it is, take the mean of the copies (all_reduce MEAN), or those of one replica."
)
_OWN_ADVICE = (
    "Add each replica's own change alone (assign_add, assign_sub), which SUM adds up; "
    "or sum the gradients first: what all replicas assign alike has aggregation MEAN "
    "or ONLY_FIRST_REPLICA."
)


def explain_by_added_copies(context: Context) -> Iterator[Hypothesis]:
    """A variable that no gradient trains, or a slot, under an aggregation that sums.

    Of a slot that has to be known: a number that a rule makes N times as large looks
    alike. All replicas assign the same value to it, or add the same; what it holds, or
    what the step changes in it, is N times that. Or each assigns what it makes of its
    own examples, as one device does of that shard alone: these may be its old value
    with a part that adds up.
    """
    n = context.replicas
    if context.phase not in UPDATED or n == 1:
        return
    cases = [
        (number, case)
        for number, case in context.list_cases()
        if _may_add_up(context, case)
    ]
    if not cases:
        return
    adds_up = _add_up(context, [case for _, case in cases])
    repeated, scaled, own = _tell(n, adds_up=adds_up)
    yield Hypothesis(
        code="slot-repeated" if context.phase == "slot" else "update-repeated",
        predicted={
            number: find_base(case) + n * (case.expected - find_base(case))
            for number, case in cases
        },
        detail=repeated,
        ratio=float(n),
    )
    yield Hypothesis(
        code="scale-error",
        predicted={number: n * case.expected for number, case in cases},
        detail=scaled,
        ratio=float(n),
        advice=_ADVICE if adds_up else _COPIES_ADVICE,
    )
    if context.phase == "slot":
        return
    yield from explain_by_old_values(context, cases, adds_up=adds_up)
    alone = {number: _find_alone(context, case) for number, case in cases}
    predicted = {
        number: np.asarray(np.sum(shards, axis=0))
        for number, shards in alone.items()
        if shards
    }
    follows = keeps_gradients(context) and not adds_up
    yield Hypothesis(
        code=NONLINEAR if follows else "statistics-not-synchronized",
        predicted=predicted,
        detail=_OWN_GRADIENTS if follows else own,
    )


def explain_by_assigned_steps(context: Context) -> Iterator[Hypothesis]:
    """A trained variable to which each replica assigns all, and not what it adds.

    Where they take their step from the same sum, it holds N times what one device
    leaves; so it does without an aggregation, where the copies that the step left are
    added up. Of variables that began at 0 that is as well a step N times as long. Where
    each takes one from its own gradient, it holds the sum of what one device, which was
    fed with these, leaves: N old values, and all steps.
    """
    n = context.replicas
    if context.phase != "variable" or n == 1:
        return
    trained = [
        (number, case)
        for number, case in context.list_cases()
        if has_gradient(context.evidence, case.key.variable)
    ]
    cases = [(number, case) for number, case in trained if _add_up(context, [case])]
    if not cases:
        if any(np.any(find_base(case)) for _, case in trained):
            yield Hypothesis(
                code="scale-error",
                predicted={number: n * case.expected for number, case in trained},
                detail=_tell(n, adds_up=False)[1],
                ratio=float(n),
                advice=_COPIES_ADVICE,
            )
        return
    does = "it adds up what the replicas assign to it"
    yield Hypothesis(
        code="scale-error",
        predicted={number: n * case.expected for number, case in cases},
        detail=f"{does}, and holds {n} times what it should",
        ratio=float(n),
        advice=_ADVICE,
    )
    alone = list_alone(context)
    predicted = {}
    for number, case in cases:
        values = [trace.get(case.key.at(0)) for trace in alone]
        shares = [take_rows(value, case) for value in values if value is not None]
        if len(shares) == n:
            predicted[number] = np.asarray(np.sum(shares, axis=0))
    yield Hypothesis(
        code="scale-error",
        predicted=predicted,
        detail=f"{does}, of each its old value with the step of the own gradient: it "
        f"holds all steps, and {n} times the old value",
        ratio=float(n),
        advice=_OWN_ADVICE,
    )


def _tell(n: int, *, adds_up: bool) -> tuple[str, str, str]:
    """Words for each of the three: a variable may be set so without an aggregation."""
    if adds_up:
        does = "it adds up what the replicas"
        return (
            f"{does} add to it, which is {n} times what the step should add",
            f"{does} assign to it, and holds {n} times what it should",
            f"{does} assign to it, and each assigns what its own examples alone give: "
            "a mean of means has aggregation MEAN",
        )
    return (
        f"the step adds {n} times what it should to it: as often as there are replicas",
        f"it holds {n} times what it should: as many as there are replicas",
        "it holds the sum of what each replica makes of its own examples alone",
    )


def _add_up(context: Context, cases: Sequence[Pair]) -> bool:
    """Whether it is the aggregation that sums."""
    return all(context.infos[case.key.variable].adds_up for case in cases)


def _may_add_up(context: Context, case: Pair) -> bool:
    if context.phase == "slot":
        return context.infos[case.key.variable].adds_up
    return not has_gradient(context.evidence, case.key.variable)


def _find_alone(context: Context, case: Pair) -> tuple[Array, ...]:
    """What one device makes of state with each shard alone."""
    values = context.evidence.reference.get_replicas(case.key)
    return tuple(take_rows(value, case) for value in values)
