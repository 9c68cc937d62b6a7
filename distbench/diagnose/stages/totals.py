"""What replicas have only together that is wrong: averages, totals and metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from distbench.compare.arrays.changes import Changes, change_alike, find_changes
from distbench.compare.arrays.pair import Pair
from distbench.compare.arrays.ratio import SAME, are_same_factors
from distbench.compare.state.results import SCALED
from distbench.compare.state.totals import is_extreme
from distbench.diagnose.causes.explain import Explained, is_vague
from distbench.diagnose.causes.other_momentum import fit_momentum
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.fit import fit_cases
from distbench.diagnose.hypotheses.collected import UNCLEARED, foretell_collected
from distbench.diagnose.names import name_replicas
from distbench.trace import STATE, Phase
from distbench.trace.numbers import Array, are_equal, densify, measure_size
from distbench.verdict import Finding

_ADD_UP = "Aggregation SUM adds up what each replica adds."
_EXTREMES = "every replica holds the largest or smallest value of its own examples"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Said:
    """What is said of a variable; see `Explained`."""

    code: str = "metric-wrong"
    detail: str
    confidence: float = 1.0
    phase: Phase = "variable"
    replicas: tuple[int, ...] | None = None
    ratio: float | None = None
    advice: str = ""


def explain_averages(context: Context) -> tuple[Explained, ...]:
    """A finding for all trained state whose copies have a wrong mean in one way.

    The first step alone is told: nothing sets it right again, so what a later one
    leaves is made of it.
    """
    return _tell_together(context, _name_mean)


def _name_mean(context: Context) -> _Said:
    made = "what the step adds to the mean of its copies is that of"
    named = _name_sum(context, made)
    if named is not None:
        return named
    if all(
        changes is None or change_alike(changes.replicas)
        for changes in _find_all(context)
    ):
        words = "no known cause explains what is wrong"
        return _Said(code="unexplained", detail=words, confidence=0.0)
    words = (
        "each replica takes a step of its own, and what their copies hold on average "
        "is not what one device has"
    )
    return _Said(code="replicas-diverged", detail=words)


def explain_totals(context: Context) -> tuple[Explained, ...]:
    """A finding for all totals that are wrong in one way on the same replicas.

    What all replicas make alike of what they reduced is no metric: its copies take the
    steps of a program, as slots do. A sum that they took in a wrong way is one mistake,
    whatever power of it each of them takes.
    """
    sums = _tell_together(context, _name_state)
    told = {case.key for cause in sums for case in cause.cases}
    left = context.select(tuple(c for c in context.cases if c.key not in told))
    kept = _tell_uncleared(left)
    if kept is not None:
        return (*sums, kept)
    return sums + _tell_together(left, _tell_total)


def _name_state(context: Context) -> _Said | None:
    """What was done in a wrong way to state that is no metric."""
    times = fit_momentum(context)
    if times is not None:
        words = (
            f"what examples make of it is right, but it goes {times:.4g} times as far "
            "to that: its momentum is another one"
        )
        ratio = float(f"{times:.4g}")
        return _Said(code="hyperparameter-differs", detail=words, ratio=ratio)
    if _are_shared(context):
        made = "every replica holds the same, and what a step adds to it is that of"
        return _name_sum(context, made)
    if not _are_shares_averaged(context):
        return None
    made = (
        "each replica adds what its own shard gives, and what is read, the mean of "
        "the copies, is"
    )
    named = _name_sum(context, made)
    if named is not None and named.code == "mean-instead-of-sum":
        return replace(named, advice=_ADD_UP)
    return named


def _tell_uncleared(context: Context) -> Explained | None:
    """State that one device clears, and in which replicas go on collecting gradients.

    It trains nothing in this step, and is no metric: what it keeps is applied later.
    """
    held: list[Pair] = []
    for case, changes in zip(context.cases, _find_all(context), strict=True):
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
        if not is_led or _fit_factor(part.cases):
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
    context: Context, tell: Callable[[Context], _Said | None]
) -> tuple[Explained, ...]:
    """A finding for all variables of which the same is said, where anything is."""
    found: dict[_Said, list[Pair]] = {}
    for part in context.part_by_variable():
        if (said := tell(part)) is not None:
            found.setdefault(said, []).extend(part.cases)
    return tuple(
        Explained(
            code=said.code,
            detail=said.detail,
            confidence=said.confidence,
            cases=tuple(cases),
            phase=said.phase,
            replicas=said.replicas,
            ratio=said.ratio,
            advice=said.advice,
        )
        for said, cases in found.items()
    )


def _name_sum(context: Context, made: str) -> _Said | None:
    """How a sum was made of which state takes the first or the second power.

    What is negative somewhere is made of no squares.

    Args:
        context: Wrong values of one variable.
        made: Words for what is that of such a sum.
    """
    cases, n = context.cases, context.replicas
    fit = _fit_factor(cases)
    if fit is None:
        return None
    powers = (1, 2) if all(np.all(_find_due(context, c) >= 0) for c in cases) else (1,)
    for code, what, factor in (
        ("mean-instead-of-sum", f"a sum divided by N = {n}", 1 / n),
        ("double-reduction", f"N = {n} times the sum", float(n)),
    ):
        if any(are_same_factors(fit, factor**power) for power in powers):
            return _Said(code=code, detail=f"{made} {what}", ratio=factor)
    return None


def _find_due(context: Context, case: Pair) -> Array:
    """What one device holds after the step."""
    return densify(context.evidence.reference.values[case.key])


def _tell_result(context: Context) -> _Said:
    return _Said(phase="loss", detail=_name_result(context, context.cases))


def _name_result(context: Context, cases: Sequence[Pair]) -> str:
    if not all(np.all(np.isfinite(case.observed)) for case in cases):
        return "what the metric shows is Inf or NaN"
    fit = _fit_factor(cases)
    times = "not" if fit is None else f"{fit:.6g} times"
    if cases[0].against == SCALED:
        return (
            f"what the metric shows is {times} what one device shows, in every step, "
            "however the examples are dealt out"
        )
    held = (
        f"{_EXTREMES}, which do not add up,"
        if _holds_extremes(context, cases[0])
        else "each part of the metric's state is what the replicas can add up to,"
    )
    return f"{held} but what it shows is {times} what one device shows"


def _holds_extremes(context: Context, case: Pair) -> bool:
    """Whether all state of a metric is the extreme of what the shards leave."""
    metric = next(
        m for m in context.evidence.observed.metrics if m.name == case.key.variable
    )
    found = (_find_change(context, path, case.key.step) for path in metric.state)
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


def _tell_total(context: Context) -> _Said:
    detail, replicas = _name_total(context, context.cases)
    return _Said(phase="loss", detail=detail, replicas=replicas)


def _name_total(
    context: Context, cases: Sequence[Pair]
) -> tuple[str, tuple[int, ...] | None]:
    """What is wrong, and by which replicas; None where all have a part in it."""
    if not all(np.all(np.isfinite(case.observed)) for case in cases):
        return "what the replicas add to it is Inf or NaN", None
    if context.replicas == 1:
        return f"{_tell_factor(cases, 'what is added to it')} what is due", None
    if _are_shared(context):
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
    if not apart and all(map(_are_extremes, _find_all(context))):
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


def _are_shared(context: Context) -> bool:
    """Whether all replicas make the same of it, though their shards do not."""
    found = _find_all(context)
    return all(changes is not None and changes.is_shared for changes in found)


def _are_shares_averaged(context: Context) -> bool:
    """Whether copies are read as their mean, each with what its shard gives."""
    return all(
        context.infos[case.key.variable].averages
        and not any(True for _ in _list_apart(context, case))
        for case in context.cases
    )


def _find_all(context: Context) -> list[Changes | None]:
    """What the step of each wrong value does to each copy."""
    cases = context.cases
    return [_find_change(context, c.key.variable, c.key.step) for c in cases]


def _find_change(context: Context, path: str, step: int) -> Changes | None:
    return find_changes(context.evidence, context.infos[path], step)


def _list_apart(context: Context, case: Pair) -> Iterator[tuple[int, Array]]:
    """Replicas that do not add what their shard alone does, and what they add."""
    changes = _find_change(context, case.key.variable, case.key.step)
    for replica, change in enumerate([] if changes is None else _split(changes)):
        observed, expected = change
        if np.any(np.abs(observed - expected) > case.margin.bound):
            yield replica, observed


def _split(changes: Changes) -> list[tuple[Array, Array]]:
    pairs = zip(changes.replicas, changes.shards, strict=True)
    return [(replica.change, shard.change) for replica, shard in pairs]


def _tell_factor(cases: Sequence[Pair], what: str) -> str:
    fit = _fit_factor(cases)
    return f"{what} is not" if fit is None else f"{what} is {fit:.6g} times"


def _fit_factor(cases: Sequence[Pair]) -> float | None:
    """One factor between all that was seen and what is due, if there is one."""
    fit = fit_cases(cases)
    return None if fit is None or fit.residual_share > SAME else fit.ratio
