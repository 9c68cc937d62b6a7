"""Finds where the chain of a step breaks, and which breaks the outcome forgives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from distbench.compare.comparison import Comparison, Judged
from distbench.compare.pair import TOLD
from distbench.trace import (
    COMPUTED,
    GRADIENTS,
    INITIAL,
    PHASES,
    SUMMED,
    WHOLE,
    TraceKey,
    VariableInfo,
)

Outcomes = Mapping[tuple[int, str, str], Sequence[Judged]]
"""Comparisons with the reference's whole batch, by step, phase and variable."""

_SAME = 1e-3
"""Two fitted factors that are no farther apart are taken for one number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """The links of all steps.

    Attributes:
        broken: Links from which a wrong outcome follows, in causal order.
        forgiven: Broken links whose effect a later one undoes.
        undecided: Broken links of a free run, of which its noise hides whether a later
            one undoes them.
        held: Links that hold.
        following: Wrong links that follow from a broken one.
        apart: Replicas whose synchronised state differs.
    """

    broken: tuple[Judged, ...]
    forgiven: tuple[Judged, ...]
    undecided: tuple[Judged, ...]
    held: tuple[Judged, ...]
    following: tuple[Judged, ...]
    apart: tuple[Judged, ...]

    @property
    def settled(self) -> tuple[Judged, ...]:
        """The links of which it is known what they are."""
        return (*self.broken, *self.forgiven, *self.held)


def judge_chain(
    judged: Sequence[Judged], infos: Mapping[str, VariableInfo], *, free: bool
) -> Chain:
    """Decide which wrong comparisons are faults of their own.

    A value is judged by what follows from the observed value before it. Where that is
    not known, or was itself wrong, it is judged against the reference, and then it is
    a fault of its own only if nothing before it was wrong.

    Args:
        judged: All comparisons.
        infos: The subject's variables by path.
        free: Whether an error may come from an earlier step.
    """
    links = _pick_links(judged)
    errors = _add_errors(links)
    right = _collect_outcomes(judged)
    broken: list[Judged] = []
    forgiven: list[Judged] = []
    undecided: list[Judged] = []
    held: list[Judged] = []
    following: list[Judged] = []
    for link in links:
        if not link.comparison.wrong:
            held.append(link)
        elif _is_forgiven(link, right, infos, errors) or _was_forgiven(
            link, right, forgiven
        ):
            forgiven.append(link)
        elif free and _never_shows(link, right, infos):
            undecided.append(link)
        elif _follows_from(link, broken, infos, free=free):
            following.append(link)
        else:
            broken.append(link)
    apart = tuple(
        j for j in judged if j.comparison.relation == "replicas" and j.comparison.wrong
    )
    return Chain(
        broken=tuple(broken),
        forgiven=tuple(forgiven),
        undecided=tuple(undecided),
        held=tuple(held),
        following=tuple(following),
        apart=apart,
    )


def _sort_key(judged: Judged) -> tuple[int, int, int, str, int]:
    c = judged.comparison
    return (c.step, PHASES.index(c.phase), c.call, c.variable, c.replica)


def _pick_links(judged: Sequence[Judged]) -> list[Judged]:
    chosen: dict[TraceKey, Judged] = {}
    for item in judged:
        relation = item.comparison.relation
        if relation in ("follows", "led") or (
            relation in ("reference", *TOLD) and item.comparison.key not in chosen
        ):
            chosen[item.comparison.key] = item
    return sorted(chosen.values(), key=_sort_key)


def _follows_from(
    link: Judged,
    broken: Sequence[Judged],
    infos: Mapping[str, VariableInfo],
    *,
    free: bool,
) -> bool:
    """Whether a wrong value is explained by one that was wrong before it."""
    c = link.comparison
    # What one replica's examples lead is wrong, whatever else the step is made of.
    is_first = c.phase in COMPUTED and not free
    if c.step == INITIAL or is_first or c.relation == "led":
        return False
    for other in broken:
        o = other.comparison
        # A total trains nothing, and the state before the first step was set from the
        # reference since.
        if o.relation in TOLD or (o.step == INITIAL and not free):
            continue
        if free and o.step < c.step:
            return True
        if not _is_earlier(o, c) or not _reaches(o.step, c):
            continue
        # What is told of a step may be made of its loss; what trains is not.
        if o.phase == "loss" and c.relation not in TOLD:
            continue
        if free or c.relation in ("reference", *TOLD):
            return True
        if "applied" not in c.against and o.phase == "applied_gradient":
            return True
        if (o.phase, c.phase) == ("slot", "variable") and _is_slot_of(
            o.variable, c.variable, infos
        ):
            return True
    return False


def _is_earlier(other: Comparison, shown: Comparison) -> bool:
    """Whether a value of a step is there before another one, which may be made of it.

    What an update is made of is there before the next update of the step.
    """
    of_updates = other.phase in GRADIENTS and shown.phase in GRADIENTS
    if of_updates and other.call > shown.call:
        return False
    return PHASES.index(other.phase) < PHASES.index(shown.phase)


def _reaches(step: int, shown: Comparison) -> bool:
    """Whether what a step left shows: in the step itself, in a metric ever after."""
    return step == shown.step or (shown.relation == "result" and step < shown.step)


def _is_slot_of(slot: str, variable: str, infos: Mapping[str, VariableInfo]) -> bool:
    info = infos.get(slot)
    return info is None or info.of in ("", variable)


def _collect_outcomes(
    judged: Sequence[Judged],
) -> dict[tuple[int, str, str], list[Judged]]:
    """Comparisons with the reference's whole batch by step, phase and variable."""
    found: dict[tuple[int, str, str], list[Judged]] = {}
    for item in judged:
        c = item.comparison
        if c.relation == "reference" and c.phase not in COMPUTED:
            found.setdefault((c.step, c.phase, c.variable), []).append(item)
    return found


def _add_errors(links: Sequence[Judged]) -> dict[TraceKey, float]:
    """How far all replicas together are off, for each value that some have wrong."""
    sums: dict[TraceKey, float] = {}
    for link in links:
        if link.comparison.wrong:
            key = link.comparison.key.at(WHOLE)
            sums[key] = sums.get(key, 0.0) + link.comparison.error
    return sums


def _is_forgiven(
    link: Judged,
    outcomes: Outcomes,
    infos: Mapping[str, VariableInfo],
    errors: Mapping[TraceKey, float],
) -> bool:
    """Whether a later value is right that would show the error if it were passed on.

    That needs a test that could see it: an error of the same relative size, in the
    later value, must lie beyond its bound. A factor of two that the rule ignores (the
    sign of a gradient) is forgiven; one of 1 + 1e-6 that drowns in the rounding of the
    variable is not. Nor is one of a single replica that drowns in the sum over all.
    """
    c = link.comparison
    if c.phase == "loss" or c.step == INITIAL or not np.isfinite(c.error):
        return False
    relative = c.error / c.change if c.change > 0 else np.inf
    place = PHASES.index(c.phase)
    if c.phase == "local_gradient":
        sums = outcomes.get((c.step, "reduced_gradient", c.variable), ())
        size = max((j.comparison.change for j in sums), default=0.0)
        if size > 0:
            relative = min(relative, errors[c.key.at(WHOLE)] / size)
    for phase in SUMMED:
        seen = outcomes.get((c.step, phase, c.variable), ())
        if PHASES.index(phase) > place and _are_right(seen, relative):
            return True
    variable = _find_owner(c.variable, infos)
    for slot in _list_slots(variable, infos):
        seen = outcomes.get((c.step, "slot", slot), ())
        if any(j.comparison.wrong for j in seen):
            return False
    if c.phase == "slot":
        return _are_right(outcomes.get((c.step, "slot", c.variable), ()), relative)
    return _are_right(outcomes.get((c.step, "variable", variable), ()), relative)


def _was_forgiven(link: Judged, outcomes: Outcomes, before: Sequence[Judged]) -> bool:
    """Whether a later value undid the same factor in an earlier step.

    In this step noise may hide whether it does; if it shows that it does not, the
    factor is a fault here.
    """
    c = link.comparison
    place = PHASES.index(c.phase)
    wrong_later = any(
        j.comparison.wrong
        for (step, phase, name), found in outcomes.items()
        if (step, name) == (c.step, c.variable) and PHASES.index(phase) > place
        for j in found
    )
    return not wrong_later and any(
        (o.phase, o.variable, o.call) == (c.phase, c.variable, c.call)
        and None not in (o.ratio, c.ratio)
        and bool(np.isclose(o.ratio, c.ratio, rtol=_SAME, atol=0.0))  # type: ignore[arg-type]  # not None
        for o in (item.comparison for item in before)
    )


def _never_shows(
    link: Judged, outcomes: Outcomes, infos: Mapping[str, VariableInfo]
) -> bool:
    """Whether no outcome of a variable or its slots is wrong from this step on.

    The error may be undone where the run's noise hides it, or be as small as that
    noise: neither can be told from what follows.
    """
    c = link.comparison
    if c.relation != "follows":
        return False
    owner = _find_owner(c.variable, infos)
    held = {owner, *_list_slots(owner, infos)}
    return not any(
        item.comparison.wrong
        for (step, _, name), found in outcomes.items()
        if step >= c.step and name in held
        for item in found
    )


def _find_owner(path: str, infos: Mapping[str, VariableInfo]) -> str:
    info = infos.get(path)
    return path if info is None else info.owner


def _list_slots(variable: str, infos: Mapping[str, VariableInfo]) -> list[str]:
    return [v.path for v in infos.values() if v.role == "slot" and v.of == variable]


def _are_right(judged: Sequence[Judged], relative: float) -> bool:
    if not judged or any(j.comparison.wrong for j in judged):
        return False
    # What is smaller than the rounding of the later value is swallowed, not undone; and
    # what is there with the rounding on top of it, or less that, was not undone either.
    return all(
        relative * j.comparison.change > j.comparison.error + j.comparison.resolution
        for j in judged
    )
