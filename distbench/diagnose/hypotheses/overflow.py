"""Causes that show where the gradients of some replicas alone are not finite."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from distbench.compare.arrays.aligned import align_value
from distbench.compare.arrays.bounds import bound_sum, find_roundoff
from distbench.compare.arrays.copies import are_same
from distbench.compare.arrays.pair import Pair
from distbench.compare.arrays.ratio import fit_ratio
from distbench.compare.state.leading import is_number
from distbench.diagnose.clues.cases import find_base
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.diagnose.clues.shown_sums import find_start
from distbench.diagnose.names import name_replicas
from distbench.trace import UPDATED, WHOLE, Phase, Value
from distbench.trace.numbers import Array, are_equal, densify


def find_overflowing(context: Context, step: int) -> tuple[int, ...]:
    """Replicas whose own gradients overflowed at a step; none if all of them did."""
    observed = context.evidence.observed
    return context.work_out(
        ("overflowing", step), lambda: observed.find_overflowing(step)
    )


def tell_source(context: Context) -> str:
    """Whose gradients spoilt the others' state, as the end of a clause.

    Where each replica's tape gave numbers, no replica alone is known to have.
    """
    step = min(case.key.step for case in context.cases)
    bad = find_overflowing(context, step)
    if bad:
        who = name_replicas(bad)
        return f": the gradients of {who} alone overflowed, and not all skip"
    finite = context.evidence.observed.find_finite(step)
    if len(finite) < context.replicas or not all(finite.values()):
        return ""
    what = "before or in the sum" if context.phase == "reduced_gradient" else "later"
    return f", though all tapes give finite gradients: it begins {what}"


def explain_by_omission(context: Context) -> Iterator[Hypothesis]:
    """The sum is that of the replicas that did not overflow."""
    if context.phase != "reduced_gradient":
        return
    steps = {case.key.step for case in context.cases}
    bad = {step: find_overflowing(context, step) for step in steps}
    predicted = {
        number: total
        for number, case in enumerate(context.cases)
        if (total := _add_finite(context, case, bad[case.key.step])) is not None
    }
    if predicted:
        lost = bad[min(context.cases[number].key.step for number in predicted)]
        yield Hypothesis(
            code="nonfinite",
            predicted=predicted,
            detail=f"the sum leaves out {name_replicas(lost)}, whose own gradients "
            "overflowed, where one device has no finite gradient",
            replicas=lost,
        )


def _add_finite(context: Context, case: Pair, bad: tuple[int, ...]) -> Array | None:
    """What the replicas that did not overflow add up to, if that was observed.

    A loss scale may be divided out on the way, or a clip follow: a factor makes no
    difference, and rounds unless it is a power of two.
    """
    if not bad or not np.isfinite(case.observed).all():
        return None
    rows = None if case.rows is None else case.rows.astype(np.int64)
    slices = context.find_slices(case)
    if slices and rows is None:
        rows = np.arange(len(case.observed))
    terms = [align_value(v, rows) for v in slices or context.find_terms(case)]
    kept = [term for replica, term in enumerate(terms) if replica not in bad]
    if not kept:
        return None
    total = np.asarray(np.sum([term.total for term in kept], axis=0))
    fit = fit_ratio(case.observed, total)
    if fit is None or fit.ratio <= 0:
        return None
    magnitude = np.asarray(np.sum([term.magnitude for term in kept], axis=0))
    # A row may be met several times by one replica: every slice is an addend.
    addends = sum(term.number for term in kept)
    u = find_roundoff(case.dtype)
    near = any(
        np.all(
            np.abs(case.observed - scale * total)
            <= bound_sum(scale * magnitude, addends + roundings, u)
        )
        for scale, roundings in (
            (2.0 ** round(math.log2(fit.ratio)), 0),
            (fit.ratio, 3),
        )
    )
    # What lies within the rounding of the sum is that sum; no share of an error that
    # is infinite would tell.
    return case.observed if near else None


def explain_by_own_skip(context: Context) -> Iterator[Hypothesis]:
    """One device skips the step; of the replicas only those that overflowed, or none.

    A step is skipped where it leaves all bits of a value as they were, or as gradients
    of 0 leave them, for a rule that goes on by its momentum.
    """
    if context.phase not in UPDATED:
        return
    step = min(case.key.step for case in context.cases)
    bad = find_overflowing(context, step)
    if not bad:
        return
    gone_on = {
        number: case.observed
        for number, case in enumerate(context.cases)
        if case.key.step == step
        and np.isfinite(case.observed).all()
        and _is_left_out(context, case)
    }
    if (
        context.phase == "slot"
        and is_applied_to_some(context, step)
        and not _differs(context, step, "slot")
    ):
        # The scale and its counter are all that shows it before the variables do.
        gone_on |= {
            number: case.observed
            for number, case in context.list_cases()
            if case.key.step == step and is_number(context.infos[case.key.variable])
        }
    if not gone_on:
        return
    alone = all(
        _stood_still(context, context.cases[number], replica)
        for number in gone_on
        for replica in bad
    )
    who = name_replicas(bad)
    skipped = f"of the replicas only {who}, whose own gradients overflowed"
    none = f"none of the replicas, though the gradients of {who} overflowed"
    yield Hypothesis(
        code="nonfinite",
        predicted=gone_on,
        detail=f"one device skips the step, {skipped if alone else none}",
    )


def _is_left_out(context: Context, case: Pair) -> bool:
    """Whether one device leaves a value as it was, or as gradients of 0 leave it."""
    starts = find_base(case), find_start(context, case)
    return any(are_equal(case.expected, start) for start in starts)


def is_applied_to_some(context: Context, step: int) -> bool:
    """Whether one device skips a step that overflows and some replica applies it.

    A loss scale and its counter then are what a step makes of them that is not skipped.
    """
    if not find_overflowing(context, step):
        return False
    evidence = context.evidence
    stood = all(
        _is_same(value, evidence.get_before(step, "variable", key.variable))
        for key, value in evidence.reference.select(
            step=step, phase="variable", replica=WHOLE
        )
    )
    return stood and _differs(context, step, "variable")


def _differs(context: Context, step: int, phase: Phase) -> bool:
    """Whether some replica's variables, or their slots, are not what one device has."""
    reference, infos = context.evidence.reference, context.infos
    return any(
        not _is_same(value, reference.get(key.at(WHOLE)))
        for key, value in context.evidence.observed.select(step=step, phase=phase)
        if phase == "variable" or not is_number(infos[key.variable])
    )


def _is_same(left: Value, right: Value | None) -> bool:
    return right is not None and are_same(left, right)


def _stood_still(context: Context, case: Pair, replica: int) -> bool:
    seen = context.evidence.observed.get(replace(case.key, replica=replica))
    return seen is not None and are_equal(densify(seen), case.expected)
