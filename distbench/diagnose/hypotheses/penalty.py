"""A penalty that counts too often, too rarely, or not at all."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from distbench.compare.arrays.pair import Pair
from distbench.compare.arrays.pull import Pull, apply_pull, fit_pull
from distbench.compare.arrays.ratio import SAME, fit_multiple
from distbench.diagnose.clues.cases import take_rows
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.diagnose.hypotheses.penalty_counts import (
    Counts,
    find_counts,
    join_counts,
    leaves_out,
    tell_counts,
)
from distbench.trace import GRADIENTS, WHOLE, TraceKey
from distbench.trace.numbers import Array, densify

_ENOUGH = 6
"""Numbers that are more than what is fitted to them."""
_WHOLE = (
    "what replicas have of it has to add up to the whole, and where gradients are "
    "averaged after that each needs all of it."
)
_ADDED = f"Add the penalty to what each replica differentiates: {_WHOLE}"
"""What to do about a penalty that is left out."""
_ONCE = f"Divide the penalty no more than once: {_WHOLE}"
"""What to do about a penalty of which there is too little."""


def explain_by_penalty(context: Context) -> Iterator[Hypothesis]:
    """The penalty's gradient counted in full by every replica, or by too few."""
    if context.phase == "loss" or not context.root:
        return
    n = context.replicas
    words = {
        1.0: f"every replica adds the whole penalty, so that it counts N = {n} times",
        1 / n**2: "the penalty is divided by the number of replicas twice",
        0.0: "the penalty is left out",
    }
    for part, text in words.items():
        if n == 1 and part != 0.0:
            continue
        predicted = {}
        for number, case in context.list_cases():
            penalty = find_penalty(context, case)
            if penalty is not None:
                times = n if case.key.replica == WHOLE else 1
                predicted[number] = case.expected + times * (part - 1 / n) * penalty
        yield Hypothesis(
            code="regularizer-not-scaled",
            predicted=predicted,
            detail=text,
            ratio=n * part,
            advice=_ADDED if part == 0 else _ONCE if part * n < 1 else "",
        )
    yield from _explain_by_decay(context)


def _explain_by_decay(context: Context) -> Iterator[Hypothesis]:
    """Where the penalty is not known: what is too much is a · θ + b · sign(θ)."""
    if context.evidence.penalty is not None:
        return
    thetas = {
        number: theta
        for number, case in context.list_cases()
        if (theta := find_theta(context, case)) is not None
    }
    predicted = {}
    known: dict[int, Pull] = {}
    counts: list[Counts | None] = []
    # A penalty of few numbers is told by what it is on the largest variable.
    for number in sorted(thetas, key=lambda n: -context.cases[n].observed.size):
        case, theta = context.cases[number], thetas[number]
        pull = known.get(case.key.step)
        if case.observed.size >= _ENOUGH:
            pull = fit_pull(theta, case.observed - case.expected)
        if pull is None:
            continue
        if _has_one_sign(pull):
            known.setdefault(case.key.step, pull)
            predicted[number] = case.expected + apply_pull(pull, theta)
            if case.observed.size >= _ENOUGH:
                counts.append(find_counts(context, case, pull))
    if predicted:
        yield _tell_penalty(context, predicted, known.values(), counts)


def _tell_penalty(
    context: Context,
    predicted: Mapping[int, Array],
    pulls: Iterable[Pull],
    counts: Sequence[Counts | None],
) -> Hypothesis:
    """How much there is of a penalty, and how often it counts where that is known."""
    much = {_is_too_much(context, pull) for pull in pulls}
    count = join_counts(counts)
    advice = _ADDED if count and leaves_out(count) else _ONCE
    return Hypothesis(
        code="regularizer-not-scaled",
        predicted=predicted,
        detail=(tell_counts(count) if count else "") or _tell_amount(much),
        advice=advice if much == {False} and context.replicas > 1 else "",
    )


def _is_too_much(context: Context, pull: Pull) -> bool | None:
    """Whether there is too much of a penalty; None where no gradient tells it."""
    return max(pull, key=abs) > 0 if context.phase in GRADIENTS else None


def _tell_amount(much: Collection[bool | None]) -> str:
    """Whether there is too much of a penalty, where nobody knows how much is due."""
    ways = {True: "too much", False: "too little", None: "too much or too little"}
    what = ways[next(iter(much)) if len(much) == 1 else None]
    return f"what is {what} is the gradient of a penalty on the variable"


def find_theta(context: Context, case: Pair) -> Array | None:
    """The variable of a case before its step, in the case's rows."""
    state = context.evidence.get_before(case.key.step, "variable", case.key.variable)
    return None if state is None else take_rows(state, case)


def _has_one_sign(pull: Pull) -> bool:
    """A penalty pulls all ways towards 0; too much or too little of it is one sign."""
    least, most = min(pull), max(pull)
    return least * most >= -1e-3 * max(least**2, most**2)


def set_apart(
    context: Context, cause: Hypothesis, count: float | None
) -> Iterator[Hypothesis]:
    """A wrong scale of losses, and the same where a penalty beside has another one.

    What a shard alone gives of a variable has the penalty in full, so what follows from
    it has that as often as the shards count together. What is left is a multiple of it:
    a · θ + b · sign(θ), with one sign. Some variables must have none. Where it has the
    sign of what they count too much or too little, the penalty is no less wrong. Where
    it has the other one, only the penalty itself tells, if it is known.

    Args:
        context: The wrong values.
        cause: The scale, with what follows from it.
        count: How often the shards count together; None where that is not known.
    """
    yield cause
    predicted = dict(cause.predicted)
    wrong: dict[int, Pull] = {}
    counts: list[Counts | None] = []
    open_ones = shared = 0
    for number, found in cause.predicted.items():
        case = context.cases[number]
        if context.matches(case, found) or case.observed.size < _ENOUGH:
            continue
        theta = find_theta(context, case)
        left = case.observed - found
        pull = None if theta is None else fit_pull(theta, left)
        if theta is None or pull is None or not _has_one_sign(pull):
            continue
        predicted[number] = found + apply_pull(pull, theta)
        penalty = find_penalty(context, case)
        more = None if penalty is None else fit_multiple(left, penalty)
        if more is not None and count is not None:
            if abs(count + more - 1) <= SAME:
                shared += 1
                continue
            wrong[number] = pull
            counts.append((count + more, None))
        elif count is not None and (count - 1) * max(pull, key=abs) >= 0:
            wrong[number] = pull
            counts.append(None)
        else:
            open_ones += 1
    if not 0 < shared + open_ones + len(wrong) < len(predicted):
        return
    words = "; a penalty beside it is shared as it should be" if shared else ""
    if open_ones:
        words = "; a penalty beside it counts otherwise, and may be shared rightly"
    told = replace(cause, predicted=predicted, detail=f"{cause.detail}{words}")
    if wrong:
        beside = {number: predicted[number] for number in wrong}
        second = _tell_penalty(context, beside, wrong.values(), counts)
        told = replace(told, beside=second)
    yield told


def find_penalty(context: Context, case: Pair) -> Array | None:
    """The penalty's gradient at the step of a case.

    Where it was recorded for the initial variables alone it is known in later steps
    only if it is linear in the variable and its sign (an L1 or L2 penalty).
    """
    trace, variable = context.evidence.penalty, case.key.variable
    if trace is None:
        return None
    first = TraceKey(step=0, phase="local_gradient", variable=variable)
    value = trace.get(replace(first, step=case.key.step))
    if value is None and context.evidence.tier == "exact":
        value = trace.get(first)  # all steps start from the same variables
    if value is not None:
        return take_rows(value, case)
    start = context.evidence.get_before(0, "variable", variable)
    now = context.evidence.get_before(case.key.step, "variable", variable)
    value = trace.get(first)
    if value is None or start is None or now is None:
        return None
    pull = fit_pull(densify(start), densify(value))
    return None if pull is None else apply_pull(pull, take_rows(now, case))
