"""What replicas have only together that is wrong: averages, totals and metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from distbench.compare.changes import Changes, change_alike, find_changes
from distbench.compare.pair import Pair
from distbench.compare.ratio import SAME, are_same_factors
from distbench.compare.totals import is_extreme
from distbench.compare.values import Array, are_equal, densify, measure_size
from distbench.diagnose.context import Context
from distbench.diagnose.explain import Explained, is_vague
from distbench.diagnose.fit import fit_cases
from distbench.diagnose.hypotheses.collected import UNCLEARED, foretell_collected
from distbench.diagnose.names import name_replicas
from distbench.diagnose.other_momentum import fit_momentum
from distbench.trace import STATE
from distbench.verdict import Finding

Told = tuple[str, tuple[int, ...] | None]
"""What happened, and to which replicas; None where all have a part in it."""
Named = tuple[str, str, float | None]
"""Code and words of a sum that was made in a wrong way, and what it is times."""
_ADD_UP = "Aggregation SUM adds up what each replica adds."
_EXTREMES = "every replica holds the largest or smallest value of its own examples"


def explain_averages(context: Context) -> tuple[Explained, ...]:
    """A finding for all trained state whose copies have a wrong mean in one way.

    The first step alone is told: nothing sets it right again, so what a later one
    leaves is made of it.
    """
    found: dict[Named, list[Pair]] = {}
    for part in context.part_by_variable():
        cases = list(part.cases)
        made = "what the step adds to the mean of its copies is that of"
        named = _name_sum(context, cases, made)
        found.setdefault(named or _name_own_steps(context, cases), []).extend(cases)
    return tuple(
        Explained(
            code=code,
            detail=detail,
            confidence=0.0 if code == "unexplained" else 1.0,
            cases=tuple(cases),
            phase="variable",
            ratio=ratio,
        )
        for (code, detail, ratio), cases in found.items()
    )


def _name_own_steps(context: Context, cases: list[Pair]) -> Named:
    """What is said of a mean of copies that is no multiple of what is due."""
    copies = [
        changes.replicas
        for case in cases
        if (
            changes := find_changes(
                context.evidence, context.infos[case.key.variable], case.key.step
            )
        )
    ]
    if all(change_alike(each) for each in copies):
        return "unexplained", "no known cause explains what is wrong", None
    return (
        "replicas-diverged",
        "each replica takes a step of its own, and what their copies hold on average "
        "is not what one device has",
        None,
    )


def explain_totals(context: Context) -> tuple[Explained, ...]:
    """A finding for all totals that are wrong in one way on the same replicas.

    What all replicas make alike of what they reduced is no metric: its copies take the
    steps of a program, as slots do. A sum that they took in a wrong way is one mistake,
    whatever power of it each of them takes.
    """
    found: dict[tuple[Named, str], list[Pair]] = {}
    rest: list[Pair] = []
    for part in context.part_by_variable():
        cases = list(part.cases)
        named = _name_state(context, cases)
        (rest if named is None else found.setdefault(named, [])).extend(cases)
    sums = tuple(
        Explained(
            code=code,
            detail=detail,
            confidence=1.0,
            cases=tuple(cases),
            phase="variable",
            ratio=ratio,
            advice=advice,
        )
        for ((code, detail, ratio), advice), cases in found.items()
    )
    left = context.select(tuple(rest))
    kept = _tell_uncleared(left)
    if kept is not None:
        return (*sums, kept)
    return sums + _tell_together(left, _tell_total)


def _name_state(context: Context, cases: list[Pair]) -> tuple[Named, str] | None:
    """What was done in a wrong way to state, and advice of its own, or ""."""
    times = fit_momentum(context, cases)
    if times is not None:
        words = (
            f"what examples make of it is right, but it goes {times:.4g} times as far "
            "to that: its momentum is another one"
        )
        return ("hyperparameter-differs", words, float(f"{times:.4g}")), ""
    if _are_shared(context, cases):
        made = "every replica holds the same, and what a step adds to it is that of"
        named = _name_sum(context, cases, made)
        return None if named is None else (named, "")
    if not _are_shares_averaged(context, cases):
        return None
    made = (
        "each replica adds what its own shard gives, and what is read, the mean of "
        "the copies, is"
    )
    named = _name_sum(context, cases, made)
    if named is None:
        return None
    return named, _ADD_UP if named[0] == "mean-instead-of-sum" else ""


def _tell_uncleared(context: Context) -> Explained | None:
    """State that one device clears, and in which replicas go on collecting gradients.

    It trains nothing in this step, and is no metric: what it keeps is applied later.
    """
    held: list[Pair] = []
    for case in context.cases:
        info = context.infos[case.key.variable]
        changes = find_changes(context.evidence, info, case.key.step)
        if changes is None or np.any(changes.whole.after):
            return None
        held += [
            replace(case, key=case.key.at(replica), observed=copy.after, rows=None)
            for replica, copy in enumerate(changes.replicas)
            if np.any(copy.after)
        ]
    if not held or foretell_collected(context, held, own=True) is None:
        return None
    replicas = tuple(sorted({case.key.replica for case in held}))
    return Explained(
        code="stale-gradient",
        detail=UNCLEARED,
        confidence=1.0,
        cases=context.cases,
        phase=context.infos[context.cases[0].key.variable].role,
        replicas=replicas,
    )


def leave_out_misled(context: Context, counts: Mapping[int, set[str]]) -> Context:
    """Without totals that get nothing in some steps, or no multiple of what is due.

    Args:
        context: Wrong totals.
        counts: By step, wrong numbers that neither gradients nor examples lead: what
            is made of a wrong count of steps follows from that. The count does not.
    """
    kept: list[Pair] = []
    for part in context.part_by_variable():
        is_led = all(
            counts.get(case.key.step, set()) - {case.key.variable}
            for case in part.cases
        )
        if not is_led or _fit_factor(list(part.cases)):
            kept += part.cases
    return context.select(tuple(kept))


def leave_out_following(
    findings: Sequence[Finding], told: Sequence[Finding]
) -> list[Finding]:
    """Without steps that are wrong as the state is by which they are taken.

    Args:
        findings: What is wrong with what trains.
        told: Sums that state of the same steps took in a wrong way.
    """

    def follows(finding: Finding, cause: Finding) -> bool:
        if finding.step < cause.step:
            return False
        if finding.code == cause.code == "stale-gradient":
            return True
        if finding.phase != "variable":
            return False
        is_same = finding.ratio is not None and cause.ratio is not None
        is_same = is_same and are_same_factors(finding.ratio or 0.0, cause.ratio or 0.0)
        return is_vague(finding) or is_same

    causes = [cause for cause in told if cause.phase in STATE]
    return [f for f in findings if not any(follows(f, cause) for cause in causes)]


def explain_results(context: Context) -> tuple[Explained, ...]:
    """A finding for all metrics that show something wrong of a state that is right."""
    return _tell_together(context, _tell_result)


def _tell_together(
    context: Context, tell: Callable[[Context, list[Pair]], Told]
) -> tuple[Explained, ...]:
    found: dict[Told, list[Pair]] = {}
    for part in context.part_by_variable():
        found.setdefault(tell(context, list(part.cases)), []).extend(part.cases)
    return tuple(
        Explained(
            code="metric-wrong",
            detail=detail,
            confidence=1.0,
            cases=tuple(cases),
            phase="loss",
            replicas=replicas,
        )
        for (detail, replicas), cases in found.items()
    )


def _name_sum(context: Context, cases: list[Pair], made: str) -> Named | None:
    """How a sum was made of which state takes the first or the second power.

    What is negative somewhere is made of no squares.

    Args:
        context: Wrong values.
        cases: Those of one variable.
        made: Words for what is that of such a sum.
    """
    fit, n = _fit_factor(cases), context.replicas
    if fit is None:
        return None
    powers = (1, 2) if all(np.all(_find_due(context, c) >= 0) for c in cases) else (1,)
    for code, what, factor in (
        ("mean-instead-of-sum", f"a sum divided by N = {n}", 1 / n),
        ("double-reduction", f"N = {n} times the sum", float(n)),
    ):
        if any(are_same_factors(fit, factor**power) for power in powers):
            return code, f"{made} {what}", factor
    return None


def _find_due(context: Context, case: Pair) -> Array:
    """What one device holds after the step."""
    return densify(context.evidence.reference.values[case.key])


def _tell_result(context: Context, cases: list[Pair]) -> Told:
    if not all(np.all(np.isfinite(case.observed)) for case in cases):
        return "what the metric shows is Inf or NaN", None
    fit = _fit_factor(cases)
    times = "not" if fit is None else f"{fit:.6g} times"
    held = (
        f"{_EXTREMES}, which do not add up,"
        if _holds_extremes(context, cases[0])
        else "each part of the metric's state is what the replicas can add up to,"
    )
    return f"{held} but what it shows is {times} what one device shows", None


def _holds_extremes(context: Context, case: Pair) -> bool:
    """Whether all state of a metric is the extreme of what the shards leave."""
    metric = next(
        m for m in context.evidence.observed.metrics if m.name == case.key.variable
    )
    found = [
        find_changes(context.evidence, context.infos[path], case.key.step)
        for path in metric.state
    ]
    return all(map(_are_extremes, found))


def _are_extremes(changes: Changes | None) -> bool:
    """Whether it holds the largest, or smallest, of what the shards leave."""
    return (
        changes is not None
        and is_extreme(
            changes, changes.shards, SAME * measure_size(changes.whole.after)
        )
        and not all(
            are_equal(copy.after, changes.shards[0].after) for copy in changes.shards
        )
    )


def _tell_total(context: Context, cases: list[Pair]) -> Told:
    if not all(np.all(np.isfinite(case.observed)) for case in cases):
        return "what the replicas add to it is Inf or NaN", None
    if context.replicas == 1:
        return f"{_tell_factor(cases, 'what is added to it')} what is due", None
    if _are_shared(context, cases):
        fit = _fit_factor(cases)
        times = "not" if fit is None else f"{fit:.6g} times"
        return (
            "every replica holds the same, made of what was reduced, and what a step "
            f"adds to it is {times} what the global batch adds on one device"
        ), None
    # What a replica adds is known where it does not depend on what it held before.
    apart: dict[int, list[Array]] = {}
    for case in cases:
        for replica, change in _list_apart(context, case):
            apart.setdefault(replica, []).append(change)
    if not apart and all(map(_are_extremes, _find_all(context, cases))):
        return f"{_EXTREMES}, and what is read of them is their sum", None
    if not apart:
        return (
            "each replica adds what its shard gives, but together that counts every "
            "shard alike, however many examples it has"
        ), None
    some = len(apart) < context.replicas
    if some and not any(np.any(change) for found in apart.values() for change in found):
        return f"nothing is added to it by {name_replicas(apart)}", tuple(sorted(apart))
    replicas = tuple(sorted(apart)) if some else None
    told = _tell_factor(cases, "what the replicas add to it together")
    return f"{told} what the global batch adds", replicas


def _are_shared(context: Context, cases: list[Pair]) -> bool:
    """Whether all replicas make the same of it, though their shards do not."""
    found = _find_all(context, cases)
    return all(changes is not None and changes.is_shared for changes in found)


def _are_shares_averaged(context: Context, cases: list[Pair]) -> bool:
    """Whether copies are read as their mean, each with what its shard gives."""
    return all(context.infos[case.key.variable].averages for case in cases) and not any(
        True for case in cases for _ in _list_apart(context, case)
    )


def _find_all(context: Context, cases: list[Pair]) -> list[Changes | None]:
    """What each of some steps does to each copy."""
    return [
        find_changes(context.evidence, context.infos[c.key.variable], c.key.step)
        for c in cases
    ]


def _list_apart(context: Context, case: Pair) -> Iterator[tuple[int, Array]]:
    """Replicas that do not add what their shard alone does, and what they add."""
    info = context.infos[case.key.variable]
    changes = find_changes(context.evidence, info, case.key.step)
    for replica, change in enumerate([] if changes is None else _split(changes)):
        observed, expected = change
        if np.any(np.abs(observed - expected) > case.margin.bound):
            yield replica, observed


def _split(changes: Changes) -> list[tuple[Array, Array]]:
    pairs = zip(changes.replicas, changes.shards, strict=True)
    return [(replica.change, shard.change) for replica, shard in pairs]


def _tell_factor(cases: list[Pair], what: str) -> str:
    fit = _fit_factor(cases)
    return f"{what} is not" if fit is None else f"{what} is {fit:.6g} times"


def _fit_factor(cases: list[Pair]) -> float | None:
    """One factor between all that was seen and what is due, if there is one."""
    fit = fit_cases(cases)
    return None if fit is None or fit.residual_share > SAME else fit.ratio
