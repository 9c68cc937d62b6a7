"""Random numbers that each replica draws for itself and adds to its own gradient."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from distbench.compare.arrays.ratio import are_near
from distbench.diagnose.clues.cases import find_tolerance
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.hypothesis import NONLINEAR, Hypothesis
from distbench.diagnose.hypotheses.decay_in_sums import (
    Addition,
    find_additions,
    is_any,
    is_decay,
)
from distbench.diagnose.seeds import find_own_draws
from distbench.trace.numbers import Array, measure_size

_MOST_SPREADS = 5.0
"""Numbers that are drawn alike go no farther."""
_MOST_ERRORS = 4.0
"""So many standard errors may lie between them and no relation with the gradients."""
_ENOUGH = 20
"""Of fewer numbers hardly any relation goes so far."""


def explain_by_own_additions(context: Context) -> Iterator[Hypothesis]:
    """One device adds numbers that it draws, and replicas draw them by other seeds.

    What one device adds does not depend on the gradient, as it says of each replica's
    own one. So the numbers of the replicas need not be known: what the sum holds beside
    the gradients is as large as numbers of that kind, and has no relation to these.
    """
    if context.phase != "reduced_gradient" or context.replicas == 1:
        return
    where = find_own_draws(context.evidence)
    additions = find_additions(context) if where else []
    if not additions or not all(_is_own(context, one) for one in additions):
        return
    if all(is_decay(context, [one]) for one in additions):
        return  # whatever is drawn, it is drawn elsewhere
    if _are_draws(additions, context.replicas):
        yield Hypothesis(
            code=NONLINEAR,
            predicted={
                one.source.number: one.source.case.observed for one in additions
            },
            detail=f"every replica draws other numbers, at {where}, and adds them to "
            "its gradient before the sum",
        )


def _is_own(context: Context, addition: Addition) -> bool:
    """Whether one device adds the same to whatever gradient it is given."""
    case = addition.source.case
    handed = context.find_changed(case)
    own = context.find_terms_of(case, case.key.variable)
    if not is_any(context, addition) or len(handed) != len(own) or not handed:
        return False
    allowed = find_tolerance(case, context.replicas)
    return all(
        bool(np.all(np.abs(one - term - addition.added) <= allowed))
        for one, term in zip(handed, own, strict=True)
    )


def _are_draws(additions: Sequence[Addition], n: int) -> bool:
    """Whether sums have such numbers beside the gradients of the replicas.

    Each replica may add a share, so they are at most N times as large as those of one
    device. They may go with the gradients as far as chance goes.
    """
    added: list[Array] = []
    totals: list[Array] = []
    for one in additions:
        total = np.asarray(sum(one.source.terms))
        rest, unit = one.source.case.observed - total, measure_size(one.added)
        if not np.any(rest) or measure_size(rest) > _MOST_SPREADS * n * unit:
            return False
        # Replicas hold a sum alike, and each step may draw by the same seed.
        if not any(are_near(rest / unit, known, rest / unit) for known in added):
            added.append(rest / unit)
            totals.append(total / (measure_size(total) or 1.0))
    left, right = (
        np.concatenate([value.ravel() for value in found]) for found in (added, totals)
    )
    size = float(np.linalg.norm(left) * np.linalg.norm(right))
    related = abs(float(np.sum(left * right))) / size if size else 0.0
    return left.size >= _ENOUGH and related * np.sqrt(left.size) <= _MOST_ERRORS
