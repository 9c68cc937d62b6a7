"""One cause for all wrong values of a phase, or one for each variable."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import chain

from distbench.codes import CODES
from distbench.compare.arrays.pair import Pair
from distbench.compare.arrays.ratio import SAME
from distbench.compare.state.leading import find_counts
from distbench.diagnose.causes.before_clip import explain_before_clip
from distbench.diagnose.causes.constraint import describe_constraint
from distbench.diagnose.causes.drift import name_apart, name_drift, name_sums_apart
from distbench.diagnose.causes.exchange import describe_exchange
from distbench.diagnose.causes.explain import Explained, explain_all
from distbench.diagnose.causes.infinite import part_infinite, part_uneven
from distbench.diagnose.causes.joining import fold_slots, join_alike
from distbench.diagnose.causes.rank import ALL, Ranked, find_best, find_full
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
        return _explain_leading(context) or _explain_parts(parts)
    if apart := find_full(context, list_apart(context)):
        return _explain_apart(context, apart)
    told = _explain_part(context)
    if told:
        return told
    if shows_micro_steps(context.evidence) and (shown := _find_shown(context)):
        return (_adopt(context, shown),)
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
        return (_adopt(context, last),)
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
        return (_adopt(context, best), *_list_beside(context, best))
    found = [
        _adopt(part, _find_best(part) or best) for part in context.part_by_variable()
    ]
    return join_alike(sorted(found, key=lambda cause: not cause.foretells))


def _explain_apart(context: Context, apart: Ranked) -> tuple[Explained, ...]:
    """What leaves nothing of some variables, and of the others that replicas differ."""
    causes: list[Explained] = []
    left: list[Pair] = []
    for part in part_by_state(context):
        if best := find_full(part, list_hypotheses(part)):
            causes.append(_adopt(part, best))
        else:
            left += part.cases
    if left:
        rest = context.select(tuple(left))
        # What differs may show in the variables that are explained alone.
        causes.append(_adopt(rest, find_best(rest, list_apart(rest)) or apart))
    return join_alike(causes)


def _explain_narrowly(context: Context, best: Ranked | None) -> tuple[Explained, ...]:
    if best is not None and _is_named(context, best):
        # One cause of all that leaves something yields to several that leave nothing.
        groups, left = _explain_groups(context)
        causes = join_alike([*groups, *_explain_each_part(left)]) if groups else ()
        is_better = bool(causes) and all(map(is_told, causes))
        return causes if is_better else (_adopt(context, best),)
    parts = part_infinite(context)
    if parts:
        causes = _explain_parts(parts)
        return fold_slots(context, causes) if context.phase == "slot" else causes
    if describe_constraint(context):
        return (leave_unexplained(context, best),)
    groups, left = _explain_groups(context)
    causes = join_alike([*groups, *_explain_each_part(left)])
    return fold_slots(context, causes) if context.phase == "slot" else causes


def _explain_each_part(context: Context) -> Iterator[Explained]:
    """A cause for each variable, with the state that it moves along."""
    for part in part_by_state(context):
        best = _find_best(part)
        yield (
            _adopt(part, best)
            if best is not None and _is_named(part, best)
            else _explain_start(part)
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
            found.append(_adopt(part, best))
    named = {case.key for cause in found for case in cause.cases}
    return found, context.select(tuple(c for c in context.cases if c.key not in named))


def _explain_part(context: Context) -> tuple[Explained, ...]:
    """What leaves nothing of some wrong values, from which the others follow."""
    clipped = [_adopt(part, cause) for part, cause in explain_before_clip(context)]
    if clipped:
        return join_alike(clipped)
    of_start = _explain_start(context)
    if of_start is not None:
        return (of_start,)
    return _explain_leading(context)


def _explain_leading(context: Context) -> tuple[Explained, ...]:
    """What leaves nothing of a count, or of kept state, that the others follow from."""
    return (
        _explain_numbers(context) or _explain_kept(context) or _explain_count(context)
    )


def _explain_start(context: Context) -> Explained | None:
    """What leaves nothing of the first step, where replicas keep something for later.

    An error that is fed back, or a momentum of the own gradients, is nothing that is
    known of later steps: what is made of them has a part of the earlier ones in it.
    """
    first = min(case.key.step for case in context.cases)
    start = context.select(tuple(c for c in context.cases if c.key.step == first))
    shown = context.evidence.observed.metric_paths
    keeps = any(
        not info.synchronised and info.path not in shown
        for info in context.infos.values()
    )
    if not keeps or len(start.cases) == len(context.cases):
        return None
    best = find_full(start, list_hypotheses(start))
    if best is None:
        return None
    told = _adopt(start, best)
    words = f"{told.detail}; what replicas keep of this step is in the later ones"
    return replace(told, cases=context.cases, detail=words)


def _explain_numbers(context: Context) -> tuple[Explained, ...]:
    """What leaves nothing of numbers that neither gradients nor examples lead.

    What is wrong beside one, such as a count of steps, follows from it, wherever it is.
    """
    part, left = _part_by_path(context, find_counts(context.evidence))
    if not (part.cases and left and _are_beside(left, part.cases)):
        return ()
    causes = explain_cases(part)
    return causes if all(map(_leaves_nothing, causes)) else ()


def _explain_kept(context: Context) -> tuple[Explained, ...]:
    """What leaves nothing of the state by which a program by hand takes its steps.

    What trains follows from that state, as it does from slots, on each replica where
    that is wrong. So does what is wrong beside state that is made of all gradients and
    is no variable's own, such as a mean of norms or a preconditioner.
    """
    part, left = _part_by_path(context, context.evidence.subject.kept)
    replicas = _find_replicas(part.cases)
    if not (part.cases and left and replicas <= _find_replicas(left)):
        return ()
    causes = explain_cases(part)
    told = tuple(filter(_leaves_nothing, causes))
    named = [case for cause in told for case in cause.cases]
    left += [c for cause in causes if cause not in told for c in cause.cases]
    is_led = _are_of_all(context, named) and _are_beside(left, named)
    return told if is_led or len(told) == len(causes) else ()


def _part_by_path(
    context: Context, paths: Collection[str]
) -> tuple[Context, list[Pair]]:
    """What is wrong with some variables, and with the others."""
    part = tuple(c for c in context.cases if c.key.variable in paths)
    left = [c for c in context.cases if c.key.variable not in paths]
    return context.select(part), left


def _leaves_nothing(cause: Explained) -> bool:
    return cause.confidence >= ALL and cause.code != "unexplained"


def _explain_count(context: Context) -> tuple[Explained, ...]:
    """What leaves nothing of a count in the first step in which anything is wrong.

    A count that begins anew at some number does so in other steps then, so that no one
    way to count explains all of it. What else is wrong is made of it.
    """
    first = min(case.key.step for case in context.cases)
    numbers = find_counts(context.evidence)
    start = context.select(
        tuple(
            case
            for case in context.cases
            if case.key.variable in numbers and case.key.step == first
        )
    )
    paths = {case.key.variable for case in start.cases}
    cases = tuple(case for case in context.cases if case.key.variable in paths)
    if not start.cases or len(start.cases) == len(cases):
        return ()
    whole = context.select(cases)
    if find_full(whole, list_hypotheses(whole)) is not None:
        return ()
    best = find_full(start, list_hypotheses(start))
    if best is None:
        return ()
    told = _adopt(start, best)
    words = f"{told.detail}; what it is later, and what is made of it, follows"
    return (replace(told, cases=cases, detail=words),)


def _are_beside(cases: Sequence[Pair], others: Sequence[Pair]) -> bool:
    """Whether each value is of a step and replica of which others are."""
    places = {(case.key.step, case.key.replica) for case in others}
    return all((case.key.step, case.key.replica) in places for case in cases)


def _find_replicas(cases: Sequence[Pair]) -> set[int]:
    return {case.key.replica for case in cases}


def _are_of_all(context: Context, cases: Sequence[Pair]) -> bool:
    """Whether some state is no variable's own: none that is trained has its shape."""
    infos = context.infos.values()
    shapes = {v.shape for v in infos if v.role == "variable" and v.trainable}
    return any(context.infos[c.key.variable].shape not in shapes for c in cases)


def _find_best(context: Context) -> Ranked | None:
    return find_best(context, list_hypotheses(context))


def _is_named(context: Context, best: Ranked) -> bool:
    """Whether to name a cause: one that leaves something yields to what leaves none.

    A mistake in what replicas exchange bends all of a loss, which comes near a factor.
    """
    open_to_all = describe_constraint(context) or describe_exchange(context)
    return best.accepted and (best.full or not open_to_all)


def _adopt(context: Context, best: Ranked) -> Explained:
    cause = best.hypothesis
    return replace(
        explain_all(context, cause.code, cause.detail, best.confidence),
        phase=cause.phase or context.phase,
        replicas=cause.replicas,
        ratio=cause.ratio,
        advice=cause.advice,
        foretells=cause.foretells,
    )


def _list_beside(context: Context, best: Ranked) -> Iterator[Explained]:
    """The second mistake that a cause has in what it foretells, if there is one."""
    cause = best.hypothesis.beside
    if cause is not None:
        part = context.select(tuple(context.cases[n] for n in sorted(cause.predicted)))
        yield _adopt(part, replace(best, hypothesis=cause))
