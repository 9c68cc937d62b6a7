"""Statistics of the examples that a program keeps, and what follows from them."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import cast

import numpy as np

from distbench.compare.state.leading import is_led, is_trained, shows_gradients
from distbench.compare.state.led_shards import (
    find_averaged,
    find_mean,
    is_doubled,
    list_leaders,
)
from distbench.diagnose.clues.cases import find_base
from distbench.diagnose.clues.context import Context, Numbered
from distbench.diagnose.clues.fit import (
    fit_weights,
    leaves_nothing,
    list_step_errors,
    make_error,
    predict_cases,
)
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.diagnose.hypotheses.narrow_statistics import explain_by_narrow_sums
from distbench.diagnose.hypotheses.steered import list_steering
from distbench.diagnose.seeds import find_own_draws
from distbench.trace import WHOLE, TraceKey, VariableInfo
from distbench.trace.numbers import Array

_SAME = 1e-4
"""Only asks which number a fitted one is; whether anything is wrong is decided."""
_CODE = "statistics-not-synchronized"
_WORDS = "what is meant to be made of the whole batch is not"
_NOR = (
    ", nor is it what the examples of one replica give, or the mean of what those of "
    "each do"
)
_MEANT = f"Where that is meant, say so with --expect {_CODE}."
_ADVICE_OF_ALL = (
    "Make it of what is summed over all replicas (all_reduce) or gathered, the count "
    "included, and not of what each replica makes of its own examples; "
    f"synchronized=True does so for batch normalisation. {_MEANT}"
)
_ADVICE_OPEN = (
    "All replicas hold the same, so they exchange something: hold it against what one "
    "device has in its place, what goes into it (all examples, once), how it is joined "
    "(a sum, the largest, rows in order), and of which step and which variables it is. "
    f"{_MEANT}"
)
_ADVICE = (
    "Add up what the replicas make of their own examples (all_reduce) before it is "
    "assigned: an aggregation MEAN, or a mean of it, divides that by N."
)


def explain_by_statistics(context: Context) -> Iterator[Hypothesis]:
    """Model variables that no gradient trains: moving averages of the data, and counts.

    What examples add to a count, twice as much where each comes twice, has to be added
    up over the replicas as well. What else a statistic should be nobody says: what it
    is made of may be the mean of what each replica makes of its own.
    """
    if context.phase != "variable":
        return
    n = context.replicas
    predicted = {number: case.observed for number, case in _list_statistics(context)}
    if not predicted:
        return
    averaged = {
        number: found
        for number in predicted
        if (found := find_averaged(context.evidence, context.cases[number])) is not None
    }
    yield Hypothesis(
        code="mean-instead-of-sum",
        predicted=averaged,
        detail="what the replicas' examples add to it is averaged and not added up: it "
        f"is divided by N = {n}",
        ratio=1 / n,
        advice=_ADVICE,
    )
    yield from _explain_by_division(context, predicted)
    yield from explain_by_narrow_sums(context, predicted)
    if one := _name_leader(context, predicted):
        yield Hypothesis(
            code=_CODE,
            predicted=predicted,
            detail=f"{_WORDS}: it is what the examples of {one} alone give",
        )
        return
    yield from _explain_by_share(context, predicted)
    yield from _explain_by_kept_part(context, predicted)
    means = {
        number: mean
        for number in predicted
        if (mean := find_mean(context.evidence, context.cases[number])) is not None
    }
    yield Hypothesis(
        code=_CODE,
        predicted=means,
        detail=f"{_WORDS}: it is the mean of what the examples of each replica give",
        advice=_ADVICE_OF_ALL,
    )


def _name_leader(context: Context, statistics: Collection[int]) -> str:
    """The one replica, or one for each value, that alone gives what is held.

    Several may give the same, as of a few counts. Where all of them do in all steps,
    each gives the mean of all as well.
    """
    found = [
        frozenset(list_leaders(context.evidence, context.cases[number]) or ())
        for number in statistics
    ]
    if not all(found) or all(len(near) == context.replicas for near in found):
        return ""
    common = sorted(frozenset.intersection(*found))
    return f"replica {common[0]}" if len(common) == 1 else "one replica"


def explain_by_unknown_statistic(context: Context) -> Iterator[Hypothesis]:
    """Says of statistics of which nothing foretells a number that they are wrong.

    Replicas that hold the same exchange something, whatever it is.
    """
    if context.phase != "variable":
        return
    statistics = dict(_list_statistics(context))
    if not statistics:
        return
    copies: dict[TraceKey, list[Array]] = {}
    for case in statistics.values():
        copies.setdefault(case.key.at(WHOLE), []).append(case.observed)
    is_alike = all(
        len(held) == context.replicas
        and all(np.array_equal(one, held[0]) for one in held)
        for held in copies.values()
    )
    predicted = {number: case.observed for number, case in statistics.items()}
    where = "" if is_alike else find_own_draws(context.evidence)
    if where:
        yield Hypothesis(
            code="replicas-diverged",
            predicted=predicted,
            detail="the replicas hold other numbers each, and it is made of what each "
            f"draws by a seed of its own, at {where}",
            advice="Draw by one seed on all replicas, or add up what they make of it.",
            foretells=False,
        )
        return
    is_known = all(
        find_mean(context.evidence, case) is not None for case in statistics.values()
    )
    yield Hypothesis(
        code=_CODE,
        predicted=predicted,
        detail=f"{_WORDS}{_NOR if is_known else ''}",
        advice=_ADVICE_OPEN if is_alike else "",
        foretells=False,
    )


def leave_out_steered(context: Context) -> Context:
    """Without state that the step moves by wrong statistics of the examples.

    By a curvature that a program estimates of the batch, say. What is wrong in the step
    and on the replica where a statistic is follows from that, as it does from slots.
    """
    places = {
        (case.key.step, case.key.replica) for _, case in _list_statistics(context)
    }
    steered = context.evidence.subject.steered
    return context.select(
        tuple(
            case
            for case in context.cases
            if case.key.variable not in steered
            or (case.key.step, case.key.replica) not in places
        )
    )


def _list_statistics(context: Context) -> Iterator[Numbered]:
    """The wrong values of model variables that examples lead, and gradients do not."""
    infos = context.infos
    led_by_gradients = list_steering(context) | set(context.evidence.subject.kept)
    if not shows_gradients(context.evidence):
        # One device was fed with none, and the traced step tells what is made of them.
        made = context.evidence.observed.notes.get("of_gradients", ())
        led_by_gradients |= set(cast(Sequence[str], made))
    for number, case in context.list_cases():
        if (
            case.key.variable in infos
            and case.key.variable not in led_by_gradients
            and _is_statistic(context, infos[case.key.variable])
            and is_led(context.evidence, case)
        ):
            yield number, case


def _explain_by_division(
    context: Context, statistics: Mapping[int, Array]
) -> Iterator[Hypothesis]:
    """Statistics made anew, which hold an N-th where they take a sum over examples.

    What shards alone leave need not add up to what is due, as of steps that each takes
    along its own gradient. Nor is it a sum in every step, as of the least loss so far:
    then the mean of what they leave says it.
    """
    n = context.replicas
    predicted: dict[int, Array] = {}
    is_sum = False
    for number in statistics:
        case = context.cases[number]
        share = case.expected / n
        if context.matches(case, share):
            predicted[number] = share
            is_sum = is_sum or is_doubled(context.evidence, case)
        elif (mean := find_mean(context.evidence, case)) is not None:
            predicted[number] = mean
    if is_sum:
        yield Hypothesis(
            code="mean-instead-of-sum",
            predicted=predicted,
            detail=f"it holds 1/{n} of what the replicas' examples make up: that is "
            f"averaged and not added up, or divided by N = {n}",
            ratio=1 / n,
            advice=_ADVICE,
        )


def _explain_by_share(
    context: Context, statistics: Mapping[int, Array]
) -> Iterator[Hypothesis]:
    """Statistics that go another part of the way to what they follow.

    Of one that starts at 0 that says nothing: what it follows may be as many times as
    large. Nor do N times or 1/N of the way, as what a replica adds may count for all.
    """
    cases = [context.cases[number] for number in statistics]
    started = {case.key.variable for case in cases if np.any(find_base(case))}
    if any(case.key.variable not in started for case in cases):
        return
    rows = list_step_errors(zip(statistics, cases, strict=True))
    weights = fit_weights(rows)
    if weights is None or not leaves_nothing(rows, weights):
        return
    times = 1 + float(weights[0])
    n = context.replicas
    if any(math.isclose(times, own, rel_tol=_SAME) for own in (n, 1 / n)):
        return
    yield Hypothesis(
        code="hyperparameter-differs",
        predicted=predict_cases(context.cases, rows, weights),
        detail=f"what examples make of it is right, but it goes {times:.6g} times as "
        "far to that: its momentum is another one",
        ratio=times,
    )


def _explain_by_kept_part(
    context: Context, statistics: Collection[int]
) -> Iterator[Hypothesis]:
    """Statistics that take what is due, and keep another part of what they held."""
    cases = [(number, context.cases[number]) for number in statistics]
    rows = [make_error(number, case, find_base(case)) for number, case in cases]
    weights = fit_weights(rows)
    if weights is None or not leaves_nothing(rows, weights):
        return
    more = float(weights[0])
    yield Hypothesis(
        code="hyperparameter-differs",
        predicted=predict_cases(context.cases, rows, weights),
        detail=f"what examples add to it is right, but it keeps {abs(more):.6g} times "
        f"its old value too {'much' if more > 0 else 'little'}: its momentum is "
        "another one",
    )


def _is_statistic(context: Context, info: VariableInfo) -> bool:
    """Whether a model variable is made of data and not of a variable's gradients."""
    if info.of:
        return False
    return not info.trainable or not is_trained(context.evidence, info.path)
