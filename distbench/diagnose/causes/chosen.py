"""One cause for all wrong values of a phase, or one for each variable."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

from distbench.codes import CODES
from distbench.compare.arrays.pair import Pair
from distbench.compare.arrays.ratio import SAME
from distbench.diagnose.causes.adopted import adopt, list_beside
from distbench.diagnose.causes.constraint import describe_constraint
from distbench.diagnose.causes.drift import name_apart, name_drift, name_sums_apart
from distbench.diagnose.causes.exchange import describe_exchange
from distbench.diagnose.causes.explain import Explained
from distbench.diagnose.causes.infinite import part_infinite, part_uneven
from distbench.diagnose.causes.joining import fold_slots, join_alike
from distbench.diagnose.causes.leading import (
    explain_leading,
    explain_part,
    explain_start,
)
from distbench.diagnose.causes.rank import Ranked, find_best, find_full
from distbench.diagnose.causes.still import part_still
from distbench.diagnose.causes.unexplained import leave_unexplained
from distbench.diagnose.causes.untried import explain_by_untried, is_told
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.fit import fit_cases
from distbench.diagnose.clues.hypothesis import NONLINEAR
from distbench.diagnose.clues.shown_sums import read_sums, shows_micro_steps
from distbench.diagnose.hypotheses.clip_of_groups import part_by_weights
from distbench.diagnose.hypotheses.followed import leave_out_followers
from distbench.diagnose.hypotheses.register import (
    list_apart,
    list_hypotheses,
    list_last,
    list_least,
)
from distbench.diagnose.hypotheses.statistics import leave_out_steered
from distbench.diagnose.hypotheses.steered import part_by_state


def explain_cases(context: Context) -> tuple[Explained, ...]:
    """Find one cause for all wrong values of a phase, or one for each variable.

    State that is infinite on one replica alone is told by itself. Of the rest one cause
    for everything comes first: it has the most numbers against it. If there is none,
    averages that follow a wrong variable rightly are left out, as is what a wrong
    statistic moves. State that stays as it was is told apart from what moves, unless
    both follow from what else is wrong. Then a variable at a time is explained, and
    equal causes are joined again; before that, what the state shows of gradients that a
    step adds up, where a look inside has seen them. Where that leaves a part open, wide
    causes are asked that leave nothing.
    """
    best = _find_best(context)
    if parts := part_uneven(context, best):
        return _explain_parts(parts)
    if best is not None and best.full:
        return _explain_each(context, best)
    for left_out in (leave_out_followers, leave_out_steered):
        led = left_out(context)
        if led.cases and len(led.cases) < len(context.cases):
            return explain_cases(led)
    if parts := part_still(context):
        # What follows from a wrong value may be in the other part.
        return explain_leading(context, explain_cases) or _explain_parts(parts)
    if apart := find_full(context, list_apart(context)):
        return _explain_apart(context, apart)
    told = explain_part(context, explain_cases)
    if told:
        return told
    if shows_micro_steps(context.evidence) and (shown := _find_shown(context)):
        return (adopt(context, shown),)
    causes = _explain_narrowly(context, best)
    if all(map(is_told, causes)):
        return causes
    return _explain_widely(context, causes)


def _explain_parts(parts: Sequence[Context]) -> tuple[Explained, ...]:
    return tuple(cause for part in parts for cause in explain_cases(part))


def _explain_widely(
    context: Context, causes: Sequence[Explained]
) -> tuple[Explained, ...]:
    """What leaves nothing by a wide cause, else the narrow ones as they are.

    What is known of sums that are right but for one number is no part of it: to their
    addends nothing was done, and a wide cause has such numbers as well.
    """
    even = [c for c in causes if is_told(c) and _are_sums(context, c.cases)]
    if even and len(even) < len(causes):
        others = [cause for cause in causes if cause not in even]
        part = context.select(tuple(case for c in others for case in c.cases))
        return (*even, *_explain_widely(part, others))
    last = find_full(context, list_last(context)) or _find_shown(context)
    if last := last or find_full(context, list_least(context)):
        return (adopt(context, last),)
    told = tuple(filter(is_told, causes))
    open_cases = [c for cause in causes if cause not in told for c in cause.cases]
    if untried := explain_by_untried(context.select(tuple(open_cases))):
        known = {id(case) for case in untried.cases}
        left = tuple(case for case in open_cases if id(case) not in known)
        rest = explain_cases(context.select(left)) if left else ()
        return (*told, untried, *rest)
    return tuple(name_sums_apart(context, cause) for cause in causes)


def _are_sums(context: Context, cases: Sequence[Pair]) -> bool:
    """Whether values are those that are due, all times one number."""
    fit = fit_cases(cases) if context.phase == "reduced_gradient" else None
    return fit is not None and fit.residual_share <= SAME


def _find_shown(context: Context) -> Ranked | None:
    """The cause of a wrong sum that nobody saw, as far as the state shows it.

    What would be a mere warning may be any small error of the rule.
    """
    found: Ranked | None = None
    for shown, is_scaled in read_sums(context):
        best = find_full(shown, chain(list_hypotheses(shown), list_last(shown)))
        if best is None or CODES[best.hypothesis.code].warning:
            continue
        cause = best.hypothesis
        how = "" if is_scaled else ", up to a factor"
        words = f"as the state that follows shows{how}, {cause.detail}"
        told = replace(cause, detail=words, phase="variable")
        if cause.code != NONLINEAR:
            return replace(best, hypothesis=told)
        found = found or replace(best, hypothesis=told)
    return found


def _explain_each(context: Context, best: Ranked) -> tuple[Explained, ...]:
    """A cause of everything; each variable's own where that foretells no number.

    What is known of some variables would be lost in what is said of all.
    """
    if best.hypothesis.foretells:
        return (adopt(context, best), *list_beside(context, best))
    found = [
        adopt(part, _find_best(part) or best) for part in context.part_by_variable()
    ]
    return join_alike(sorted(found, key=lambda cause: not cause.foretells))


def _explain_apart(context: Context, apart: Ranked) -> tuple[Explained, ...]:
    """What leaves nothing of some variables, and of the others that replicas differ."""
    causes: list[Explained] = []
    left: list[Pair] = []
    for part in part_by_state(context):
        if best := find_full(part, list_hypotheses(part)):
            causes.append(adopt(part, best))
        else:
            left += part.cases
    if left:
        rest = context.select(tuple(left))
        # What differs may show in the variables that are explained alone.
        causes.append(adopt(rest, find_best(rest, list_apart(rest)) or apart))
    return join_alike(causes)


def _explain_narrowly(context: Context, best: Ranked | None) -> tuple[Explained, ...]:
    if best is not None and _is_named(context, best):
        # One cause of all that leaves something yields to several that leave nothing.
        return _explain_wholly(context) or (adopt(context, best),)
    parts = part_infinite(context)
    if parts:
        causes = _explain_parts(parts)
        return fold_slots(context, causes) if context.phase == "slot" else causes
    if describe_constraint(context):
        return (leave_unexplained(context, best),)
    groups, left = _explain_groups(context)
    causes = join_alike([*groups, *_explain_each_part(left)])
    return fold_slots(context, causes) if context.phase == "slot" else causes


def _explain_wholly(context: Context) -> tuple[Explained, ...]:
    """Several causes that leave nothing, each of enough numbers; empty without them.

    Factors lie near each other, as 1/N and 0: what is near to all of several variables
    may be true of none, or of one.
    """
    causes, left = _explain_groups(context)
    for part in part_by_state(left):
        best = find_full(part, list_hypotheses(part))
        if best is None or best.is_chance or not best.hypothesis.foretells:
            return ()
        causes.append(adopt(part, best))
    return join_alike(causes)


def _explain_each_part(context: Context) -> Iterator[Explained]:
    """A cause for each variable, with the state that it moves along."""
    for part in part_by_state(context):
        best = _find_best(part)
        yield (
            adopt(part, best)
            if best is not None and _is_named(part, best)
            else explain_start(part)
            or name_drift(part)
            or name_apart(part)
            or leave_unexplained(part, best)
        )


def _explain_groups(context: Context) -> tuple[list[Explained], Context]:
    """What leaves nothing of some variables together, and what is wrong besides."""
    found = []
    for part in part_by_weights(context):
        best = find_full(part, list_hypotheses(part))
        if best is not None and best.hypothesis.foretells:
            found.append(adopt(part, best))
    named = {case.key for cause in found for case in cause.cases}
    return found, context.select(tuple(c for c in context.cases if c.key not in named))


def _find_best(context: Context) -> Ranked | None:
    return find_best(context, list_hypotheses(context))


def _is_named(context: Context, best: Ranked) -> bool:
    """Whether to name a cause: one that leaves something yields to what leaves none.

    A mistake in what replicas exchange bends all of a loss, which comes near a factor.
    """
    open_to_all = describe_constraint(context) or describe_exchange(context)
    return best.accepted and (best.full or not open_to_all)
