"""What is known of wrong slots, whatever their cause."""

from __future__ import annotations

from dataclasses import replace

from distbench.compare.pair import Pair
from distbench.compare.values import Array, densify
from distbench.diagnose.context import Context, Numbered
from distbench.trace import SUMMED, TraceKey


def group_by_kind(context: Context, *, by_step: bool = False) -> list[list[Numbered]]:
    """The wrong values by what the optimizer calls their slot, for a common fit.

    Slots are of one kind if their paths differ by their variable's alone. A path that
    does not hold that of its variable is a kind of its own.

    Args:
        context: The wrong values.
        by_step: Whether each step is a kind of its own, as a schedule makes it.
    """

    def name_kind(case: Pair) -> tuple[str, int]:
        kind = context.infos[case.key.variable].kind
        return kind, case.key.step if by_step else 0

    return list(context.group_cases(name_kind).values())


def find_locals(context: Context, case: Pair, owner: str) -> tuple[Array, ...]:
    """The replicas' own gradients of a slot's variable, dense; empty if any lacks."""
    key = TraceKey(step=case.key.step, phase="local_gradient", variable=owner)
    observed = context.evidence.observed
    for call in context.calls:
        found = observed.get_replicas(replace(key, call=call))
        values = tuple(map(densify, found))
        if values and all(value.shape == case.observed.shape for value in values):
            return values
    return ()


def is_sum_unseen(context: Context) -> bool:
    """Whether no sum of gradients was seen on its way to any of the slots.

    A slot that belongs to no variable may be made of the gradients of all.
    """
    owners = {context.infos[case.key.variable].of for case in context.cases}
    summed = context.work_out("summed", lambda: _list_summed(context))
    return not (summed if "" in owners else summed & owners)


def _list_summed(context: Context) -> set[str]:
    """Variables of which a sum was seen."""
    return {
        key.variable
        for trace in (context.evidence.observed, context.evidence.reference)
        for phase in SUMMED
        for key, _ in trace.select(phase=phase)
    }


def are_some(context: Context) -> bool:
    """Whether only some of the replicas that hold the slots are wrong."""
    wrong = {case.key.replica for case in context.cases}
    return bool({key.replica for key in context.right} - wrong)
