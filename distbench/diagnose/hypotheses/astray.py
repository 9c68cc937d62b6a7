"""Losses that are made of what each replica has of its own examples, and not of all."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from distbench.compare.intermediates import Astray
from distbench.diagnose.astray import describe_astray, find_times, list_astray
from distbench.diagnose.context import Context, Hypothesis


def explain_by_own_value(context: Context) -> Iterator[Hypothesis]:
    """A statistic of the own examples, somewhere between the examples and the loss.

    Not fitted but seen, with all that it is made of right: so it explains whatever
    comes of it. Where the loss has it as a term of its own, that is what is wrong. And
    what all replicas have alike may be a multiple of what one device has.
    """
    found = list_astray(context)
    times = find_times(found)
    known = all(one.is_statistic or one.in_full for one in found)
    if times is None and not (found and known):
        return
    yield Hypothesis(
        code="scale-error" if times else _find_code(found, context.replicas),
        predicted={number: case.observed for number, case in context.list_cases()},
        detail=describe_astray(context),
        phase="loss",
        ratio=times,
    )


def _find_code(found: Sequence[Astray], replicas: int) -> str:
    """What is wrong with means that are terms, by what they add up to; else with all.

    Means that are averaged over the replicas each weigh as much, however many examples
    they are of. Of terms that are means of the own examples the sum is about N times
    that of all, or about that if each is divided by N. What every replica adds in full
    is a penalty where it is made of variables alone.
    """
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
