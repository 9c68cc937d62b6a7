"""What leaves nothing of some wrong values, from which the others follow."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from distbench.compare.arrays.pair import Pair
from distbench.compare.state.leading import find_counts
from distbench.diagnose.causes.adopted import adopt
from distbench.diagnose.causes.before_clip import explain_before_clip
from distbench.diagnose.causes.explain import Explained
from distbench.diagnose.causes.joining import join_alike
from distbench.diagnose.causes.rank import ALL, find_full
from distbench.diagnose.clues.context import Context
from distbench.diagnose.hypotheses.register import list_hypotheses

Explain = Callable[[Context], tuple[Explained, ...]]
"""Finds the causes of a part by itself."""


def explain_part(context: Context, explain: Explain) -> tuple[Explained, ...]:
    """What leaves nothing of some wrong values, from which the others follow."""
    clipped = [adopt(part, cause) for part, cause in explain_before_clip(context)]
    if clipped:
        return join_alike(clipped)
    of_start = explain_start(context)
    if of_start is not None:
        return (of_start,)
    return explain_leading(context, explain)


def explain_leading(context: Context, explain: Explain) -> tuple[Explained, ...]:
    """What leaves nothing of a count, or of kept state, that the others follow from."""
    return (
        _explain_numbers(context, explain)
        or _explain_kept(context, explain)
        or _explain_count(context)
    )


def explain_start(context: Context) -> Explained | None:
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
    told = adopt(start, best)
    words = f"{told.detail}; what replicas keep of this step is in the later ones"
    return replace(told, cases=context.cases, detail=words)


def _explain_numbers(context: Context, explain: Explain) -> tuple[Explained, ...]:
    """What leaves nothing of numbers that neither gradients nor examples lead.

    What is wrong beside one, such as a count of steps, follows from it, wherever it is.
    """
    part, left = _part_by_path(context, find_counts(context.evidence))
    if not (part.cases and left and _are_beside(left, part.cases)):
        return ()
    causes = explain(part)
    return causes if all(map(_leaves_nothing, causes)) else ()


def _explain_kept(context: Context, explain: Explain) -> tuple[Explained, ...]:
    """What leaves nothing of the state by which a program by hand takes its steps.

    What trains follows from that state, as it does from slots, on each replica where
    that is wrong. So does what is wrong beside state that is made of all gradients and
    is no variable's own, such as a mean of norms or a preconditioner.
    """
    part, left = _part_by_path(context, context.evidence.subject.kept)
    replicas = _find_replicas(part.cases)
    if not (part.cases and left and replicas <= _find_replicas(left)):
        return ()
    causes = explain(part)
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
    told = adopt(start, best)
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
