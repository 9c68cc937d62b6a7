"""Finds where the chain of a step breaks, and which breaks the outcome forgives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from distbench.compare.arrays.pair import OF_COPIES, TOLD, UPDATES
from distbench.compare.comparison import Comparison, Judged
from distbench.diagnose.stages.forgiving import (
    Forgiven,
    Outcomes,
    add_errors,
    is_forgiven,
    never_shows,
)
from distbench.trace import (
    COMPUTED,
    GRADIENTS,
    INITIAL,
    PHASES,
    Phase,
    TraceKey,
    VariableInfo,
)


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

    @property
    def wrong(self) -> tuple[Judged, ...]:
        """The links that do not hold, whatever comes of them."""
        return (*self.broken, *self.forgiven, *self.undecided, *self.following)

    def shows(self, phase: Phase) -> bool:
        """Whether anything was seen of a phase."""
        return any(link.comparison.phase == phase for link in self.settled)


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
    errors = add_errors(links)
    outcomes = Outcomes(judged, infos)
    broken = _Broken(infos)
    forgiven = Forgiven()
    undecided: list[Judged] = []
    held: list[Judged] = []
    following: list[Judged] = []
    for link in links:
        if not link.comparison.wrong:
            held.append(link)
        elif is_forgiven(link, outcomes, errors) or (
            forgiven.has_like(link) and not outcomes.are_wrong_later(link)
        ):
            forgiven.add(link)
        elif free and never_shows(link, outcomes):
            undecided.append(link)
        elif broken.leads(link) or _follows_from(link, broken, free=free):
            following.append(link)
        else:
            broken.add(link)
    apart = tuple(
        j for j in judged if j.comparison.relation == "replicas" and j.comparison.wrong
    )
    return Chain(
        broken=tuple(broken.links),
        forgiven=tuple(forgiven.links),
        undecided=tuple(undecided),
        held=tuple(held),
        following=tuple(following),
        apart=apart,
    )


def sort_key(judged: Judged) -> tuple[int, int, int, str, int]:
    """Where a link is in causal order."""
    c = judged.comparison
    return (c.step, PHASES.index(c.phase), c.call, c.variable, c.replica)


def _pick_links(judged: Sequence[Judged]) -> list[Judged]:
    chosen: dict[TraceKey, Judged] = {}
    for item in judged:
        relation = item.comparison.relation
        if relation in ("follows", "added", "led") or (
            relation in ("reference", *OF_COPIES) and item.comparison.key not in chosen
        ):
            chosen[item.comparison.key] = item
    return sorted(chosen.values(), key=sort_key)


class _Broken:
    """Broken links, and at which places they are.

    Args:
        infos: The subject's variables by path.
    """

    def __init__(self, infos: Mapping[str, VariableInfo]) -> None:
        self._infos = infos
        self.links: list[Judged] = []
        self.places: dict[tuple[int, int, Phase], set[str]] = {}
        """By step, call and phase: what the values belong to, `""` for everything."""
        self.begun: set[str] = set()
        """State that is wrong before the first step."""
        self._astray: int | None = None
        """The first step that leaves copies wrong which nothing sets right again."""

    def add(self, link: Judged) -> None:
        """Take one more."""
        self.links.append(link)
        c = link.comparison
        if self._astray is None and c.relation == "average":
            self._astray = c.step
        if c.step == INITIAL:
            self.begun.add(c.variable)
        # A total trains nothing.
        if c.relation not in TOLD:
            info = self._infos.get(c.variable)
            owned = self.places.setdefault((c.step, c.call, c.phase), set())
            owned.add("" if info is None else info.of)

    def leads(self, link: Judged) -> bool:
        """Whether a step begins with trained copies that an earlier one left wrong."""
        return self._astray is not None and self._astray < link.comparison.step


def _follows_from(link: Judged, broken: _Broken, *, free: bool) -> bool:
    """Whether a wrong value is explained by one that was wrong before it."""
    c = link.comparison
    # What one replica's examples lead is wrong, whatever else the step is made of.
    is_first = c.phase in COMPUTED and not free
    if c.step == INITIAL or is_first:
        return False
    if c.relation == "led":
        # Of a free run the first step goes on from what a program begins with.
        return free and c.variable in broken.begun
    return any(
        _leads_to(place, owned, c, free=free) for place, owned in broken.places.items()
    )


def _leads_to(
    place: tuple[int, int, Phase], owned: set[str], shown: Comparison, *, free: bool
) -> bool:
    """Whether a wrong value may be made of what is wrong at a place before it."""
    step, call, phase = place
    # The state before the first step was set from the reference since.
    if step == INITIAL and not free:
        return False
    if free and step < shown.step:
        return True
    if not _is_earlier(phase, call, shown) or not _reaches(step, shown):
        return False
    # What is told of a step may be made of its loss; what trains is not.
    if phase == "loss" and shown.relation not in TOLD:
        return False
    if free or shown.relation in ("reference", *OF_COPIES):
        return True
    if phase == "applied_gradient" and shown.against != UPDATES[phase]:
        return True
    is_slot = (phase, shown.phase) == ("slot", "variable")
    return is_slot and not owned.isdisjoint(("", shown.variable))


def _is_earlier(phase: Phase, call: int, shown: Comparison) -> bool:
    """Whether a value of a step is there before another one, which may be made of it.

    What an update is made of is there before the next update of the step.
    """
    of_updates = phase in GRADIENTS and shown.phase in GRADIENTS
    if of_updates and call > shown.call:
        return False
    return PHASES.index(phase) < PHASES.index(shown.phase)


def _reaches(step: int, shown: Comparison) -> bool:
    """Whether what a step left shows: in the step itself, in a metric ever after."""
    return step == shown.step or (shown.relation == "result" and step < shown.step)
