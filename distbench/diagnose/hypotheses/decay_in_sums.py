"""A weight decay that replicas add to their gradients, and that arrives too often."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from distbench.compare.arrays.pair import Pair
from distbench.compare.arrays.pull import apply_pull, fit_pull
from distbench.compare.arrays.ratio import SAME
from distbench.diagnose.clues.addends import Source, list_known
from distbench.diagnose.clues.cases import find_tolerance, take_rows
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.fit import Row, fit_weights
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.diagnose.hypotheses.penalty import find_theta
from distbench.trace import WHOLE, Phase
from distbench.trace.numbers import Array, measure_size

_REPEATED = "weight-decay-repeated"
_ENOUGH = 4
"""A decay is told by two numbers, and of no more than two they explain anything."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Addition:
    """What one device adds to its gradient, beside the gradients of the replicas.

    Attributes:
        source: The wrong sum, and the addends without what is added to them.
        theta: The variable before the step, in the rows of the sum; None if not known.
        added: What is added to it once.
    """

    source: Source
    theta: Array | None
    added: Array


def find_additions(context: Context) -> list[Addition]:
    """What one device adds to each gradient; empty if it is not known of all.

    It may do so to a multiple of what its tape gave, as under a loss scale: that is
    seen by what it makes of each replica's own gradient.
    """
    plain = _find_plain_additions(context)
    if not _are_decays(context, plain):
        multiplied = _find_additions_to_multiples(context)
        if _are_decays(context, multiplied):
            return multiplied
    return plain


def _are_decays(context: Context, additions: Sequence[Addition]) -> bool:
    """Whether all that is added is a decay, told by more than two numbers."""
    added = [one for one in additions if is_any(context, one)]
    return any(one.added.size >= _ENOUGH for one in added) and all(
        is_decay(context, [one]) for one in added
    )


def _find_additions_to_multiples(context: Context) -> list[Addition]:
    """What one device adds to something that is linear in each gradient.

    Of f(g) = L g + d, Σ f(g_r) - f(Σ g_r) = (N - 1) d, whatever L is.
    """
    found = []
    for source in list_known(context):
        changed = context.find_changed(source.case)
        if len(changed) != context.replicas or context.replicas == 1:
            return []
        more = np.sum(changed, axis=0) - source.case.expected
        added = np.asarray(more / (context.replicas - 1))
        terms = tuple(np.asarray(value - added) for value in changed)
        found.append(
            Addition(
                source=replace(source, terms=terms),
                theta=find_theta(context, source.case),
                added=added,
            )
        )
    return found


def _find_plain_additions(context: Context) -> list[Addition]:
    """What one device adds to each gradient that its tape gave."""
    found = []
    for source in list_known(context):
        case = source.case
        due = _find_whole(context, case, "reduced_gradient")
        own = _find_whole(context, case, "local_gradient")
        if due is None or own is None:
            return []
        theta = find_theta(context, case)
        found.append(Addition(source=source, theta=theta, added=due - own))
    return found


def is_any(context: Context, addition: Addition) -> bool:
    """Whether anything is added, beyond rounding."""
    widest = np.asarray(find_tolerance(addition.source.case, context.replicas))
    return measure_size(addition.added) > measure_size(widest)


def is_decay(context: Context, additions: Sequence[Addition]) -> bool:
    """Whether they are a θ + b sign(θ) of a variable, as decays and penalties are.

    Args:
        context: The wrong values.
        additions: Those to which one pull is fitted.
    """
    thetas = [one.theta for one in additions if one.theta is not None]
    if not thetas or len(thetas) < len(additions):
        return False
    theta = np.concatenate([value.ravel() for value in thetas])
    pull = fit_pull(theta, np.concatenate([one.added.ravel() for one in additions]))
    return pull is not None and all(
        context.are_near(one.source.case, one.added, apply_pull(pull, value))
        for one, value in zip(additions, thetas, strict=True)
    )


def explain_by_counted_decay(context: Context) -> Iterator[Hypothesis]:
    """The sum holds the decay k times: some replicas add it, or all a wrong share.

    observed = Σ g_r + k d, with one k for all variables; what d is one device tells.
    Only of a decay: a gradient that is made k times as large, or clipped to another
    norm, is off by a multiple of what one device makes of it as well.
    """
    additions = _find_decays(context)
    if not additions:
        return
    rows = [_make_row(one) for one in additions]
    is_left_out = all(
        context.matches(one.source.case, np.asarray(sum(one.source.terms)))
        for one in additions
    )
    weights = None if is_left_out else fit_weights(rows)
    times = 0.0 if weights is None else float(weights[0])
    if not (is_left_out or times > SAME):
        return
    predicted = {
        one.source.number: np.asarray(sum(one.source.terms) + times * one.added)
        for one in additions
    }
    if context.match_all(predicted):
        yield Hypothesis(
            code=_REPEATED if times > 1 else "weight-decay-missing",
            predicted=predicted,
            detail=_describe_times(times, context.replicas),
            ratio=times,
            of_due=True,
        )


def explain_by_decayed_rows(context: Context) -> Iterator[Hypothesis]:
    """Each replica adds a decay to the rows that its own examples have.

    One device adds it to those that any example has, so a row gets as many decays, or
    N-ths of one, as replicas have it. Nothing is fitted.
    """
    additions = _find_decays(context)
    counts = {one.source.number: _count_holders(context, one) for one in additions}
    n = context.replicas
    for share, words in ((1.0, "the decay"), (1 / n, f"1/{n} of the decay")):
        predicted = {}
        for one in additions:
            count = counts[one.source.number]
            if count is not None:
                added = share * count * one.added
                predicted[one.source.number] = np.asarray(sum(one.source.terms) + added)
        if predicted:
            yield Hypothesis(
                code=_REPEATED,
                predicted=predicted,
                detail=f"every replica adds {words} to the rows of its own examples: a "
                "row gets as many of these as there are replicas that have it",
            )


def _find_decays(context: Context) -> list[Addition]:
    """What one device adds to the wrong sums, where it is a decay that does so."""
    if context.phase != "reduced_gradient" or context.replicas == 1:
        return []
    additions = [one for one in find_additions(context) if is_any(context, one)]
    groups: dict[str, list[Addition]] = {}
    for one in additions:
        groups.setdefault(one.source.case.key.variable, []).append(one)
    for group in groups.values():
        # By a schedule it is another one in each step.
        large = all(one.added.size >= _ENOUGH for one in group)
        parts = [[one] for one in group] if large else [group]
        if sum(one.added.size for one in group) < _ENOUGH or not all(
            is_decay(context, part) for part in parts
        ):
            return []
    return additions


def _make_row(addition: Addition) -> Row:
    """What the observed sum has beside the gradients of the replicas."""
    source = addition.source
    return Row(
        number=source.number,
        target=source.case.observed - np.asarray(sum(source.terms)),
        features=(addition.added,),
    )


def _count_holders(context: Context, addition: Addition) -> Array | None:
    """How many replicas have each row of a sum, as a column; None of a dense one."""
    case = addition.source.case
    slices = context.find_own_slices(case)
    if len(slices) != context.replicas:
        return None
    held = np.sum([one.count_rows() > 0 for one in slices], axis=0).astype(np.float64)
    rows = held if case.rows is None else held[case.rows.astype(np.int64)]
    return np.asarray(rows.reshape(-1, *(1 for _ in slices[0].shape[1:])))


def _describe_times(times: float, n: int) -> str:
    """What it may come of that a sum holds a decay so often."""
    if times == 0:
        return "the sum over the replicas lacks the weight decay, which one device adds"
    whole, of_shares = round(times), round(n * times)
    words = f"the sum over the replicas holds the weight decay {times:.6g} times"
    if times > 1 and abs(times - whole) <= SAME and whole < n:
        who = f"{whole} of N = {n} replicas"
        return f"{words}, as where {who} add it to their gradients"
    if times < 1 and abs(n * times - of_shares) <= SAME:
        who = f"{of_shares} of N = {n} replicas"
        return f"{words}, as where {who} add their N-th of it to their gradients"
    return f"{words}, as where each adds a wrong share of it to its own gradient"


def _find_whole(context: Context, case: Pair, phase: Phase) -> Array | None:
    """What one device has of the global batch in a phase, in the rows of a case."""
    key = replace(case.key, phase=phase, replica=WHOLE)
    value = context.evidence.reference.get(key)
    return None if value is None else take_rows(value, case)
