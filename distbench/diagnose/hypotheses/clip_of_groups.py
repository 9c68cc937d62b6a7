"""Groups of variables whose joint norm is clipped before the sum, each by itself."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from distbench.compare.arrays.least_squares import solve_least_squares
from distbench.diagnose.clues.addends import (
    Source,
    list_rounded,
    list_sources,
    tell_joined,
    tell_own,
)
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.fit import add_weighted
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.diagnose.hypotheses.limits import (
    find_below,
    fit_limit,
    sum_clipped,
)
from distbench.diagnose.hypotheses.norms import GlobalNorm
from distbench.trace.numbers import Array

_FEWEST = 2
"""A norm of one variable alone is joint with no other."""
Place = tuple[int, int]
"""A step, and the replica that holds a sum."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Group:
    """Variables of which the replicas count alike in each sum.

    Attributes:
        paths: Their names.
        sources: Their wrong sums.
        weights: What the replicas count in them, where that is known.
    """

    paths: list[str] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)
    weights: dict[Place, Array] = field(default_factory=dict)


def explain_by_clip_of_groups(context: Context) -> Iterator[Hypothesis]:
    """Σ_r g_r min(1, c/‖g_r‖) with the norm of some variables' gradients together.

    Which variables these are is read off the sums: in those of a group each replica
    counts alike. c is fitted for each group, and has to leave nothing of it.
    """
    if context.phase != "reduced_gradient" or context.replicas == 1:
        return
    groups = _find_groups(context, list_sources(context))
    if not any(len(group.paths) >= _FEWEST for group in groups):
        return
    n, rounded = context.replicas, list_rounded(context)
    every = {path for group in groups for path in group.paths}
    # A group that is never clipped is in none of these, and rounded all the same.
    others = {s.number for s in rounded if s.case.key.variable not in every}
    for mean, of_rows in itertools.product((1.0, 1.0 / n), (False, True)):
        predicted: dict[int, Array] = {}
        told: list[str] = []
        below = set(others) if mean == 1 else set()
        for group in groups:
            norm = GlobalNorm(
                context, of_call=False, of_rows=of_rows, of=frozenset(group.paths)
            )
            limit = fit_limit(group.sources, norm, mean)
            if limit is None:
                break
            made = {s.number: sum_clipped(s, norm, limit, mean) for s in group.sources}
            if not context.match_all(made):
                break
            predicted |= made
            if mean == 1:
                small = [s for s in rounded if s.case.key.variable in group.paths]
                below |= find_below(small, norm, limit)
            told.append(_describe(group.paths, tell_own(context, limit)))
        if len(told) == len(groups):
            yield Hypothesis(
                code="clip-before-reduction",
                predicted=predicted,
                detail=f"every replica clips {' and '.join(told)} before the replicas' "
                f"gradients are {tell_joined(context, mean)}",
                of_due=True,
                fitted=len(groups),
                rounded=below,
            )


def part_by_weights(context: Context) -> Iterator[Context]:
    """A context for each group of variables of which the replicas count alike.

    What was done to several together, as a clip of their joint norm, no single one
    shows, nor do all that are wrong if some of them have another cause. A group of one
    variable or of all is left out.
    """
    if context.phase != "reduced_gradient" or context.replicas == 1:
        return
    paths = {case.key.variable for case in context.cases}
    for group in _find_groups(context, list_sources(context)):
        if _FEWEST <= len(group.paths) < len(paths):
            yield context.select(
                tuple(c for c in context.cases if c.key.variable in group.paths)
            )


def _find_groups(context: Context, sources: Sequence[Source]) -> list[_Group]:
    """Variables whose sums tell what the replicas count, and then the smaller ones."""
    of_paths: dict[str, list[Source]] = {}
    for source in sources:
        of_paths.setdefault(source.case.key.variable, []).append(source)
    weights = {path: _fit_places(found) for path, found in of_paths.items()}
    groups: list[_Group] = []
    for path in sorted(of_paths, key=lambda path: -len(weights[path])):
        found = of_paths[path]
        group = next((g for g in groups if _belongs(context, g, found)), None)
        if group is None:
            group = _Group()
            groups.append(group)
        group.paths.append(path)
        group.sources += found
        group.weights = {**weights[path], **group.weights}
    return groups


def _fit_places(sources: Sequence[Source]) -> Mapping[Place, Array]:
    """What each replica counts in the sums of a variable that have enough elements."""
    found = {}
    for source in sources:
        if source.case.observed.size >= 2 * len(source.terms):
            matrix = np.stack([term.ravel() for term in source.terms], axis=1)
            weights = solve_least_squares(matrix, source.case.observed.ravel())
            if weights is not None:
                found[_name_place(source)] = weights
    return found


def _belongs(context: Context, group: _Group, sources: Sequence[Source]) -> bool:
    """Whether replicas count alike in a variable's sums as in those of a group."""
    shared = [s for s in sources if _name_place(s) in group.weights]
    return bool(shared) and all(
        context.are_near(
            source.case,
            source.case.observed,
            add_weighted(group.weights[_name_place(source)], source.terms),
        )
        for source in shared
    )


def _name_place(source: Source) -> Place:
    return source.case.key.step, source.case.key.replica


def _describe(paths: Sequence[str], limit: float) -> str:
    names = ", ".join(f"'{path}'" for path in sorted(paths)[:3])
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    joint = "joint norm" if len(paths) > 1 else "norm"
    return f"the {joint} of {names}{more} to {limit:.6g}"
