"""Steps that some replicas take, or take part in, and others do not.

Who skips a step by what it has itself decides so: by a norm, or a loss that is too
large.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from distbench.compare.arrays.pair import Pair
from distbench.compare.arrays.ratio import SAME, fit_common_ratio
from distbench.diagnose.clues.cases import take_rows
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.diagnose.names import name_replicas
from distbench.trace import SUMMED
from distbench.trace.numbers import Array

_MOST = 6
"""Of more replicas there are too many ways to leave some out."""
_ADVICE = (
    "Decide by what all replicas have: sum the loss, or reduce the gradients, before "
    "the step is left out."
)


def explain_by_own_decision(context: Context) -> Iterator[Hypothesis]:
    """Of each sum some replicas go on with all, or a multiple of it, others with 0.

    It is the same replicas that skip for all variables.
    """
    if context.phase not in SUMMED or context.replicas == 1:
        return
    predicted: dict[int, Array] = {}
    first: tuple[frozenset[int], bool] | None = None
    for step in sorted({case.key.step for case in context.cases}):
        skipping = _find_skipping(context, step)
        if skipping is None:
            continue
        found = _predict(context, step)
        if found and 0 < len(skipping) < context.replicas:
            is_due = any(np.any(context.cases[number].expected) for number in found)
            first = first or (skipping, is_due)
        predicted |= found  # in another step all may decide otherwise than one device
    if first is None:
        return
    skipping, is_due = first
    others = [r for r in range(context.replicas) if r not in skipping]
    one = "which one device takes" if is_due else "as one device does"
    yield Hypothesis(
        code="replicas-diverged",
        predicted=predicted,
        detail=f"the step is left out by {name_replicas(sorted(skipping))}, {one}, and "
        f"not by {name_replicas(others)}: each decides by something of its own, so the "
        "copies go apart",
    )


def explain_by_own_part(context: Context) -> Iterator[Hypothesis]:
    """In each step others take part in the sums, or some do where one device skips it.

    The same ones in those of all variables. Who is left out of every sum is no matter
    of a decision.
    """
    if context.phase not in SUMMED or not 1 < context.replicas <= _MOST:
        return
    predicted: dict[int, Array] = {}
    parts: dict[int, tuple[int, ...]] = {}
    for step in sorted({case.key.step for case in context.cases}):
        found = _find_part(context, step)
        if found is None:
            return
        parts[step], sums = found
        predicted |= sums
    some = [step for step, part in parts.items() if 0 < len(part) < context.replicas]
    if not some:
        return
    step, kept = some[0], parts[some[0]]
    due = [c.expected for c in context.cases if c.key.step == step]
    is_due = any(np.any(value) for value in due)
    if is_due and len(set(parts.values())) == 1:
        return
    lost = tuple(r for r in range(context.replicas) if r not in kept)
    one = "takes all" if is_due else "takes none, and skips the step"
    yield Hypothesis(
        code="replica-dropped",
        predicted=predicted,
        detail=f"in step {step} the sum takes the gradients of {name_replicas(kept)} "
        f"and leaves out those of {name_replicas(lost)}, where one device {one}: each "
        "replica decides by something of its own whether it takes part",
        replicas=lost,
        choices=2**context.replicas,
        advice=_ADVICE,
    )


def _find_part(
    context: Context, step: int
) -> tuple[tuple[int, ...], dict[int, Array]] | None:
    """The replicas of which all sums of a step are, and the sums; None for no such."""
    known = {
        number: (case, terms)
        for number, case in context.list_cases()
        if case.key.step == step and (terms := _find_own(context, case))
    }
    if not known:
        return None
    for size in range(context.replicas + 1):
        for kept in itertools.combinations(range(context.replicas), size):
            sums: dict[int, Array] = {}
            for number, (case, terms) in known.items():
                total = np.asarray(sum((terms[r] for r in kept), 0 * case.expected))
                if not context.matches(case, total):
                    break  # of a large model most parts are refused by one variable
                sums[number] = total
            else:
                return kept, sums
    return None


def _find_own(context: Context, case: Pair) -> tuple[Array, ...]:
    """What the replicas bring in, also where one device skips and leaves nothing."""
    terms = context.find_terms(case)
    if any(np.any(term) for term in terms):
        return terms
    return tuple(context.find_terms_of(case, case.key.variable))


def _find_skipping(context: Context, step: int) -> frozenset[int] | None:
    """The replicas that go on with 0 for all variables; None where these differ."""
    found: set[frozenset[int]] = set()
    for case in context.cases:
        if case.key.step == step:
            values = context.evidence.observed.get_replicas(case.key)
            held = [take_rows(value, case) for value in values]
            found.add(frozenset(r for r, value in enumerate(held) if not np.any(value)))
            if len(held) < context.replicas:
                return None
    (skipping, *more) = found
    return None if more else skipping


def _predict(context: Context, step: int) -> dict[int, Array]:
    """0, or what all replicas add up to, but for a factor that all sums have."""
    sums = {
        number: np.asarray(np.sum(terms, axis=0))
        for number, case in context.list_cases()
        if case.key.step == step and (terms := context.find_terms(case))
    }
    pairs = [
        (held, total)
        for number, total in sums.items()
        for value in context.evidence.observed.get_replicas(context.cases[number].key)
        for held in [take_rows(value, context.cases[number])]
        if np.any(held)
    ]
    fit = fit_common_ratio(pairs)
    if fit is None or fit.residual_share > SAME or fit.ratio <= 0:
        return {}
    seen = {number: context.cases[number].observed for number in sums}
    return {
        number: fit.ratio * sums[number] if np.any(value) else np.zeros_like(value)
        for number, value in seen.items()
    }
