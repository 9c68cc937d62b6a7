"""Replicas that make different things of the same gradient."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from distbench.compare.arrays.pair import Pair
from distbench.diagnose.causes.explain import Explained, explain_all
from distbench.diagnose.clues.cases import find_base
from distbench.diagnose.clues.context import Context
from distbench.trace import TraceKey
from distbench.trace.numbers import Array, are_equal, densify


def name_drift(context: Context) -> Explained | None:
    """Updates that nothing explains, and that are not the same on all replicas.

    The replicas' gradients are the same sum: what makes them differ is in the rule.
    """
    code = {"variable": "replicas-diverged", "slot": "slot-not-synchronized"}
    # Random numbers in a rule make its replay no measure, so nothing follows there.
    undetermined = context.evidence.subject.undetermined
    is_fed = all(
        case.relation == "follows" or case.key.variable in undetermined
        for case in context.cases
    )
    if context.phase not in code or not is_fed:
        return None
    # A replica whose random numbers are those of one device by chance is not wrong.
    for place in {case.key.step: case.key for case in context.cases}.values():
        owner = context.infos[place.variable].owner
        given = context.evidence.name_gradients(place, "reduced_gradient", owner)
        sums = [held for key in given if (held := _take_held(context, key))]
        made = _take_held(context, place)
        if not sums or _are_all_equal(made):
            return None
        if any(len(s) < max(2, len(made)) or not _are_all_equal(s) for s in sums):
            return None
    words = "the rule makes something else of the same gradient on each replica"
    return explain_all(context, code[context.phase], words)


def name_apart(context: Context) -> Explained | None:
    """Steps by hand that nothing explains, and that are not the same on all replicas.

    No sum was seen, so all that leads such a step may differ. Where it goes the right
    way on each replica, a number of its own is the only thing that does.
    """
    seen = (context.find_gradient(case) for case in context.cases)
    if context.phase != "variable" or any(value is not None for value in seen):
        return None
    for place in {case.key.step: case.key for case in context.cases}.values():
        made = _take_held(context, place)
        if len(made) < 2 or _are_all_equal(made):
            return None
    words = (
        "each replica changes its copy in another way, as one does who steps by "
        "something of its own gradients or examples"
    )
    if all(_has_other_length(context, case) for case in context.cases):
        words = (
            "each replica takes the right step times a number of its own, as one does "
            "who goes by a norm of its own gradient or a count of its own examples, so "
            "the copies go apart"
        )
    return explain_all(context, "replicas-diverged", words, confidence=0.0)


def name_sums_apart(context: Context, cause: Explained) -> Explained:
    """Gradients that nothing explains, and that are not the same on all replicas.

    Whatever the sum was, what a replica made of it has something of its own in it.
    """
    places = {replace(case.key, replica=0) for case in cause.cases}
    held = [_take_held(context, place) for place in places]
    if (
        cause.code != "unexplained"
        or cause.phase != "reduced_gradient"
        or any(len(made) < 2 or _are_all_equal(made) for made in held)
    ):
        return cause
    words = (
        "each replica makes something else of the gradients of all, as one does who "
        "goes by something of its own gradients or examples, so the copies go apart"
    )
    if all(_has_other_length(context, case) for case in cause.cases):
        words = (
            "each replica takes the right sum times a number of its own, as one does "
            "who goes by its own loss or a norm of its own gradient, so the copies go "
            "apart"
        )
    return replace(cause, code="replicas-diverged", detail=words)


def _has_other_length(context: Context, case: Pair) -> bool:
    """Whether a step is the right one but for its length."""
    base = find_base(case)
    due, step = case.expected - base, case.observed - base
    size = float(np.sum(due * due))
    if due.size < 2 or not 0 < size < np.inf:
        return False
    return context.matches(case, base + float(np.sum(due * step)) / size * due)


def _take_held(context: Context, key: TraceKey) -> list[Array]:
    """What the replicas hold at a place, of those that hold anything."""
    held = [
        context.evidence.observed.get(key.at(replica))
        for replica in range(context.replicas)
    ]
    return [densify(value) for value in held if value is not None]


def _are_all_equal(values: Sequence[Array]) -> bool:
    return all(are_equal(value, values[0]) for value in values)
