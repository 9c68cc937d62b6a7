"""Losses and steps that are made of what is each replica's own, and not of all."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from distbench.compare.inside.intermediates import Astray
from distbench.diagnose.clues.astray import (
    describe_astray,
    find_meant,
    find_times,
    list_astray,
)
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.fit import fit_cases
from distbench.diagnose.clues.hypothesis import NONLINEAR, Hypothesis
from distbench.trace import COMPUTED, SUMMED

_ADDED = frozenset({"examples", "numbers", "variables"})
"""What each replica adds in full before a sum."""

_AT_ONCE = (
    "Divide what all micro-batches add up by one count, of the examples or tokens in "
    "all of them on all replicas, and none by its own; then add up the gradients, or "
    "multiply the loss by N where they are averaged."
)

_OF_ALL = (
    "Take it over the examples of all replicas: gather what it is the largest or "
    "smallest of (all_gather) first. Where that of the own ones is meant, say so with "
    "--expect statistics-not-synchronized."
)


def explain_by_own_value(context: Context) -> Iterator[Hypothesis]:
    """A statistic of the own examples, somewhere between the examples and the loss.

    Not fitted but seen, with all that it is made of right: so it explains whatever
    comes of it. Where the loss has it as a term of its own, that is what is wrong. And
    what all replicas have alike may be a multiple of what one device has. There is none
    where each example adds what follows from its place, and from no other example.
    """
    counted = context.evidence.counted
    if context.phase not in COMPUTED or (counted is not None and counted.by_place):
        return
    found = list_astray(context)
    times = find_times(found)
    known = all(one.is_statistic or one.in_full for one in found)
    if times is None and not (found and known):
        return
    code = "scale-error"
    if times is None:
        code = _find_code_of_cut(context, found) or _find_code(found, context.replicas)
    yield Hypothesis(
        code=code,
        predicted={number: case.observed for number, case in context.list_cases()},
        detail=describe_astray(context),
        phase="loss",
        ratio=None if times is None else times / find_meant(context),
        advice=_advise(found),
    )


def explain_by_own_value_on_the_way(context: Context) -> Iterator[Hypothesis]:
    """A value of the own shard, somewhere between losses that are right and a step.

    A statistic of the own examples is such, as a curvature, and so is whatever is made
    of an addend as if it were the sum and is not linear. What all replicas have alike,
    and what is added up and has in full on each what is the same, has other causes.
    """
    if context.phase in COMPUTED:
        return
    found = list_astray(context)
    if not found or not all(one.is_statistic and not one.in_full for one in found):
        return
    yield Hypothesis(
        code=_find_code_of_cut(context, found) or _find_code_of_step(found),
        predicted={number: case.observed for number, case in context.list_cases()},
        detail=describe_astray(context),
        phase="loss" if context.phase in SUMMED and _are_of_losses(found) else None,
        of_due=True,  # a mask of the addends may leave their plain sum as well
        advice=_advise(found),
    )


def explain_by_full_value_on_the_way(context: Context) -> Iterator[Hypothesis]:
    """What all replicas have alike is part of what each adds to a sum, and counts N.

    As a residual of earlier steps, of which each replica keeps the whole.
    """
    if context.phase in COMPUTED:
        return
    found = list_astray(context)
    if not found or not all(one.in_full in _ADDED for one in found):
        return
    yield Hypothesis(
        code="double-reduction",
        predicted={number: case.observed for number, case in context.list_cases()},
        detail=describe_astray(context),
        of_due=True,
        advice="Add it once: behind the sum, or an N-th of it on each replica.",
    )


def _are_of_losses(found: Sequence[Astray]) -> bool:
    return all(one.of_loss for one in found)


def _find_code_of_cut(context: Context, found: Sequence[Astray]) -> str:
    """What is wrong with means over micro-batches, by the size of what comes of them.

    They are means of means in any case, and N times as large or an N-th besides. State
    that a rule keeps of gradients has their size; of some rules a step has none, and
    losses may be sums or means, whatever their gradients are.

    Returns:
        Empty where not all are such means, or nothing tells their size.
    """
    if not all(one.of_cut for one in found):
        return ""
    kept = context.evidence.subject.kept
    cases = [case for _, case in context.list_cases()]
    known = [case for case in cases if case.key.variable in kept]
    known = known or [case for case in cases if case.key.phase != "loss"]
    fit = fit_cases(known or cases)
    if fit is None:
        return ""
    root = math.sqrt(context.replicas)
    if fit.ratio > root:
        return "loss-not-scaled"
    return "mean-of-means" if fit.ratio > 1 / root else "loss-scaled-twice"


def _advise(found: Sequence[Astray]) -> str:
    if found and all(one.of_cut for one in found):
        return _AT_ONCE
    return _OF_ALL if found and all(_is_extreme(one) for one in found) else ""


def _is_extreme(one: Astray) -> bool:
    """Whether it is the largest or smallest of some numbers, and no part of a sum.

    No count that it is divided by makes it that of all.
    """
    return one.made.op in ("Max", "Min") and not one.is_mean


def _find_code_of_step(found: Sequence[Astray]) -> str:
    """What has the mean of the replicas' values on one device is a statistic.

    Averaged over the replicas it is one of means that weigh alike, however many
    examples they are of. Else it is made of addends.
    """
    if all(one.is_mean and one.joined == "mean" for one in found):
        return "mean-of-means"
    if any(one.of_share and not one.is_mean for one in found):
        return NONLINEAR
    return "statistics-not-synchronized"


def _find_code(found: Sequence[Astray], replicas: int) -> str:
    """What is wrong with means that are terms, by what they add up to; else with all.

    Means that are averaged over the replicas each weigh as much, however many examples
    they are of. Of terms that are means of the own examples the sum is about N times
    that of all, or about that if each is divided by N. What every replica adds in full
    is a penalty where it is made of variables alone. What holds its addend against a
    limit would have to hold the sum against it. The largest of the own examples may
    come near that of all, as a mean does, and is none.
    """
    if all(one.in_full == "limit" or _is_extreme(one) for one in found):
        return "statistics-not-synchronized"
    if all(one.in_full in ("examples", "variables") for one in found):
        is_penalty = all(one.in_full == "variables" for one in found)
        return "regularizer-not-scaled" if is_penalty else "loss-not-scaled"
    if all(one.joined == "mean" and one.is_mean for one in found):
        return "mean-of-means"
    totals = [one.term for one in found]
    if all(total is not None and total > math.sqrt(replicas) for total in totals):
        return "loss-not-scaled"
    if all(total is not None and total > 1 / math.sqrt(replicas) for total in totals):
        return "mean-of-means"
    return "statistics-not-synchronized"
