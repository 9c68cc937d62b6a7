"""Which wrong values a later one undoes, so that no wrong outcome follows from them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from distbench.compare.arrays.ratio import are_same_factors
from distbench.compare.comparison import Comparison, Judged
from distbench.trace import (
    COMPUTED,
    GRADIENTS,
    INITIAL,
    PHASES,
    SUMMED,
    WHOLE,
    Phase,
    TraceKey,
    VariableInfo,
)


class Outcomes:
    """What tells an outcome of the whole batch, by step, phase and variable.

    Args:
        judged: All comparisons.
        infos: The subject's variables by path.
    """

    def __init__(
        self, judged: Sequence[Judged], infos: Mapping[str, VariableInfo]
    ) -> None:
        self._infos = infos
        self._slots: dict[str, list[str]] = {}
        for info in infos.values():
            if info.role == "slot":
                self._slots.setdefault(info.of, []).append(info.path)
        self._found: dict[tuple[int, str, str], list[Judged]] = {}
        for item in judged:
            c = item.comparison
            if c.phase not in COMPUTED and _tells_outcome(c):
                self._found.setdefault((c.step, c.phase, c.variable), []).append(item)

    def get(self, step: int, phase: Phase, variable: str) -> Sequence[Judged]:
        """Those of one value."""
        return self._found.get((step, phase, variable), ())

    def find_owner(self, path: str) -> str:
        """The variable of the model that state belongs to, or is."""
        info = self._infos.get(path)
        return path if info is None else info.owner

    def list_slots(self, variable: str) -> Sequence[str]:
        """Those of a variable."""
        return self._slots.get(variable, ())

    def are_wrong_later(self, link: Judged) -> bool:
        """Whether a later value of the same variable is wrong in the same step."""
        c = link.comparison
        return any(
            item.comparison.wrong
            for phase in PHASES[PHASES.index(c.phase) + 1 :]
            for item in self.get(c.step, phase, c.variable)
        )

    def are_wrong_from(self, step: int, variables: Collection[str]) -> bool:
        """Whether anything of some variables is wrong from a step on."""
        return any(
            item.comparison.wrong
            for (at, _, name), found in self._found.items()
            if at >= step and name in variables
            for item in found
        )


def _tells_outcome(shown: Comparison) -> bool:
    """Whether it holds state against what one device has.

    A slot of the replicas' own trains as one that they share, and has no other measure.
    """
    is_own_slot = shown.relation == "total" and shown.phase == "slot"
    return is_own_slot or shown.relation in ("reference", "average")


class Forgiven:
    """Broken links that a later one undoes.

    Where noise hides in one step whether it does, the same factor in an earlier step
    tells; if this step shows that it does not, the factor is a fault here.
    """

    def __init__(self) -> None:
        self.links: list[Judged] = []
        self._ratios: dict[tuple[Phase, str, int], list[float]] = {}

    def add(self, link: Judged) -> None:
        """Take one more."""
        self.links.append(link)
        c = link.comparison
        if c.ratio is not None:
            self._ratios.setdefault((c.phase, c.variable, c.call), []).append(c.ratio)

    def has_like(self, link: Judged) -> bool:
        """Whether one of the same value has the same factor."""
        c = link.comparison
        known = self._ratios.get((c.phase, c.variable, c.call), ())
        return c.ratio is not None and any(
            are_same_factors(ratio, c.ratio) for ratio in known
        )


def add_errors(links: Sequence[Judged]) -> dict[TraceKey, float]:
    """How far all replicas together are off, for each value that some have wrong."""
    sums: dict[TraceKey, float] = {}
    for link in links:
        if link.comparison.wrong:
            key = link.comparison.key.at(WHOLE)
            sums[key] = sums.get(key, 0.0) + link.comparison.error
    return sums


def is_forgiven(
    link: Judged, outcomes: Outcomes, errors: Mapping[TraceKey, float]
) -> bool:
    """Whether a later value is right that would show the error if it were passed on.

    Or the value itself, where it follows from one before and the reference has it too.

    That needs a test that could see it: an error of the same relative size, in the
    later value, must lie beyond its bound. A factor of two that the rule ignores (the
    sign of a gradient) is forgiven; one of 1 + 1e-6 that drowns in the rounding of the
    variable is not. Nor is one of a single replica that drowns in the sum over all.
    Inf and NaN have no size; see `_is_left_out`.
    """
    c = link.comparison
    if c.phase == "loss" or c.step == INITIAL:
        return False
    if not np.isfinite(c.error):
        return _is_left_out(link, outcomes)
    relative = c.error / c.change if c.change > 0 else np.inf
    place = PHASES.index(c.phase)
    if c.phase == "local_gradient":
        sums = outcomes.get(c.step, "reduced_gradient", c.variable)
        size = max((j.comparison.change for j in sums), default=0.0)
        if size > 0:
            relative = min(relative, errors[c.key.at(WHOLE)] / size)
    # Or it is right itself by the reference, as the average of N times the shares.
    first = place if c.relation == "follows" else place + 1
    for phase in SUMMED:
        seen = outcomes.get(c.step, phase, c.variable)
        if PHASES.index(phase) >= first and _are_right(seen, relative):
            return True
    variable = outcomes.find_owner(c.variable)
    for slot in outcomes.list_slots(variable):
        seen = outcomes.get(c.step, "slot", slot)
        if any(j.comparison.wrong for j in seen):
            return False
    if c.phase == "slot":
        return _are_right(outcomes.get(c.step, "slot", c.variable), relative)
    return _are_right(outcomes.get(c.step, "variable", variable), relative)


def _is_left_out(link: Judged, outcomes: Outcomes) -> bool:
    """Whether a gradient is not finite as it should be, where that is all that counts.

    One device that leaves all bits of the variable as they were took nothing of such a
    gradient. Where in it that is may then differ: of a sparse one, the first row is
    another one on a replica than on one device. What the replicas make of it is judged
    by what comes later.
    """
    c, pair = link.comparison, link.pair
    if c.phase not in GRADIENTS or pair is None:
        return False
    seen, due = np.isfinite(pair.observed), np.isfinite(pair.expected)
    if seen.all() or due.all():
        return False
    with np.errstate(invalid="ignore"):
        rest = np.abs(pair.observed - pair.expected)
    if not np.all((rest <= pair.margin.bound) | ~seen | ~due):
        return False
    left = outcomes.get(c.step, "variable", outcomes.find_owner(c.variable))
    return bool(left) and all(j.comparison.change == 0 for j in left)


def never_shows(link: Judged, outcomes: Outcomes) -> bool:
    """Whether no outcome of a variable or its slots is wrong from this step on.

    The error may be undone where the run's noise hides it, or be as small as that
    noise: neither can be told from what follows.
    """
    c = link.comparison
    if c.relation != "follows":
        return False
    owner = outcomes.find_owner(c.variable)
    held = {owner, *outcomes.list_slots(owner)}
    return not outcomes.are_wrong_from(c.step, held)


def _are_right(judged: Sequence[Judged], relative: float) -> bool:
    if not judged or any(j.comparison.wrong for j in judged):
        return False
    # What is smaller than the rounding of the later value is swallowed, not undone; and
    # what is there with the rounding on top of it, or less that, was not undone either.
    return all(
        relative * j.comparison.change > j.comparison.error + j.comparison.resolution
        for j in judged
    )
