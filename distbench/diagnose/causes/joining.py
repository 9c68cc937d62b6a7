"""What the causes of several parts of what is wrong come to together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from distbench.diagnose.causes.details import join_details
from distbench.diagnose.causes.explain import Explained
from distbench.diagnose.clues.context import Context


def fold_slots(context: Context, causes: Sequence[Explained]) -> tuple[Explained, ...]:
    """Without slots that nothing explains, of variables that have one explained.

    A rule may make one slot from another; what is made from a wrong one follows it. So
    does every slot from a wrong one that belongs to no variable: a number that the rule
    is given, or a preconditioner.
    """
    infos = context.infos
    named = [
        infos[case.key.variable]
        for cause in causes
        if cause.code != "unexplained"
        for case in cause.cases
    ]
    known = {info.of for info in named}
    all_follow = any(not info.of for info in named)
    kept = []
    for cause in causes:
        cases = cause.cases
        if cause.code == "unexplained":
            left = () if all_follow else cases
            cases = tuple(c for c in left if infos[c.key.variable].of not in known)
        if cases:
            kept.append(replace(cause, cases=cases))
    return tuple(kept)


def join_alike(causes: Sequence[Explained]) -> tuple[Explained, ...]:
    """One cause for each code, and one more for what foretells no number."""
    found: dict[tuple[str, bool], list[Explained]] = {}
    for cause in causes:
        found.setdefault((cause.code, cause.foretells), []).append(cause)
    return tuple(_join(parts) for parts in found.values())


def _join(parts: Sequence[Explained]) -> Explained:
    first = parts[0]
    cases = tuple(case for part in parts for case in part.cases)
    weight = sum(part.confidence * len(part.cases) for part in parts)
    same = all(part.replicas == first.replicas for part in parts)
    return replace(
        first,
        detail=join_details(
            [(p.detail, c.key.variable) for p in parts for c in p.cases]
        ),
        cases=cases,
        confidence=weight / len(cases),
        replicas=first.replicas if same else None,
        ratio=first.ratio if all(p.ratio == first.ratio for p in parts) else None,
    )
