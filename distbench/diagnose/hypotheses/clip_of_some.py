"""Some replicas clip their gradients before the sum, and the others do not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from distbench.compare.arrays.least_squares import solve_least_squares
from distbench.compare.arrays.ratio import SAME
from distbench.diagnose.clues.addends import (
    Source,
    list_rounded,
    list_sources,
    tell_joined,
    tell_own,
)
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.diagnose.hypotheses.limits import (
    find_below,
    fit_limit,
    sum_clipped,
)
from distbench.diagnose.hypotheses.norms import Norm, list_norms
from distbench.diagnose.names import name_replicas
from distbench.trace.numbers import Array


def explain_by_clip_of_some(context: Context) -> Iterator[Hypothesis]:
    """Σ_r g_r with some addends scaled down to a norm c; c is fitted.

    Which replicas do so is read off each sum: the others have a weight of 1 in all.
    """
    if context.phase != "reduced_gradient" or context.replicas == 1:
        return
    sources, rounded = list_sources(context), list_rounded(context)
    some = _find_scaled(sources, context.replicas)
    if not 0 < len(some) < context.replicas:
        return
    who = f"{name_replicas(some)} alone clip{'s' if len(some) == 1 else ''}"
    for words, norm, found in list_norms(context, sources):
        own = _NormOfSome(norm, some)
        limit = fit_limit(found, own)
        if limit is not None:
            yield Hypothesis(
                code="clip-before-reduction",
                predicted={s.number: sum_clipped(s, own, limit) for s in found},
                detail=f"{who} {words.format(tell_own(context, limit))} before the "
                f"replicas' gradients are {tell_joined(context)}",
                replicas=some,
                fitted=1,
                rounded=find_below(rounded, own, limit),
            )


def _find_scaled(sources: Sequence[Source], replicas: int) -> tuple[int, ...]:
    """The replicas whose gradients are smaller in some sum than they are."""
    found: set[int] = set()
    for source in sources:
        if len(source.terms) < replicas or source.case.observed.size < 2 * replicas:
            continue
        matrix = np.stack([term.ravel() for term in source.terms], axis=1)
        weights = solve_least_squares(matrix, source.case.observed.ravel())
        if weights is not None:
            found |= {r for r in range(replicas) if weights[r] < 1 - SAME}
    return tuple(sorted(found))


@dataclass(frozen=True, slots=True)
class _NormOfSome:
    """A norm that is 0, which nothing limits, of the addends of other replicas."""

    norm: Norm
    replicas: tuple[int, ...]

    def __call__(self, source: Source, place: int) -> float | Array:
        """Norm of the addend at a place; 0 if its replica does not clip."""
        if source.replicas[place] in self.replicas:
            return self.norm(source, place)
        return 0.0

    def relate(self, source: Source, value: Array) -> float | Array | None:
        """Norm of a value, whichever replica it is from."""
        return self.norm.relate(source, value)
