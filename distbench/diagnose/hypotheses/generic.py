"""Causes that can show in any phase."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from distbench.compare.pair import Pair
from distbench.compare.values import Array, densify
from distbench.diagnose.context import Context, Hypothesis, take_rows
from distbench.diagnose.fit import fit_cases
from distbench.diagnose.hypotheses.overflow import tell_source
from distbench.diagnose.names import name_lag
from distbench.trace import COMPUTED, GRADIENTS, STATE, WHOLE, SparseRows, TraceKey

_FEW = 4
"""Fewer numbers do not show that one ratio is that of all."""
_SAME = 1e-3
"""Fractions of small numbers lie farther apart; the fit of the values decides."""


def explain_by_nonfinite(context: Context) -> Iterator[Hypothesis]:
    """Inf or NaN where the expected value is finite."""
    predicted: dict[int, Array] = {}
    for number, case in enumerate(context.cases):
        if np.all(np.isfinite(case.expected)) and not np.all(
            np.isfinite(case.observed)
        ):
            predicted[number] = case.observed
    if predicted:
        source = "" if context.phase in COMPUTED else tell_source(context)
        yield Hypothesis(
            code="nonfinite",
            predicted=predicted,
            detail="Inf or NaN where one device has numbers"
            f"{source}{_tell_scale(context)}",
            replicas=_find_spoilt(context, [context.cases[n] for n in predicted]),
        )


def _find_spoilt(context: Context, cases: Sequence[Pair]) -> tuple[int, ...] | None:
    """Replicas that bring Inf or NaN first to a sum of what each computes by itself.

    None where the values are no such sums.
    """
    first = min(case.key.step for case in cases)
    keys = [case.key for case in cases if case.key.step == first]
    if context.phase not in COMPUTED or any(key.replica != WHOLE for key in keys):
        return None
    values = [context.evidence.observed.get_replicas(key) for key in keys]
    bad = {
        replica
        for found in values
        for replica, value in enumerate(found)
        if not np.isfinite(densify(value)).all()
    }
    return tuple(sorted(bad)) or None


def _tell_scale(context: Context) -> str:
    """What a loss scale did: a scalar slot of no variable that changed by 2^k."""
    step = min(case.key.step for case in context.cases)
    for info in context.infos.values():
        if info.role != "slot" or info.of or info.shape:
            continue
        before = context.evidence.get_before(step, "slot", info.path)
        after = context.evidence.observed.get(
            TraceKey(step=step, phase="slot", variable=info.path, replica=0)
        )
        if before is None or after is None:
            continue
        old, new = float(densify(before)), float(densify(after))
        if old > 1 and new > 0 and np.frexp(old / new)[0] == 0.5:
            what = "stayed at" if old == new else f"went from {old:g} to"
            return f", and '{info.path}' {what} {new:g}"
    return ""


def explain_by_staleness(context: Context) -> Iterator[Hypothesis]:
    """The value of an earlier step; 0 where there was none yet."""
    if context.phase not in GRADIENTS:
        return
    last = max(case.key.step for case in context.cases)
    for lag in range(1, last + 1):
        predicted: dict[int, Array] = {}
        seen = False
        for number, case in context.list_cases():
            step = case.key.step - lag
            if step < 0:
                predicted[number] = np.zeros_like(case.observed)
                continue
            # What the phase should have held then: the observed gradients of that
            # step, or the reference's.
            value = _find_earlier(context, number, step)
            if value is not None:
                predicted[number] = value
                seen = True
        if seen:
            yield Hypothesis(
                code="stale-gradient",
                predicted=predicted,
                detail=f"it is the value of {name_lag(lag)} before",
            )


def _find_earlier(context: Context, number: int, step: int) -> Array | None:
    case = context.cases[number]
    if context.phase == "reduced_gradient":
        terms = context.find_terms_of(case, case.key.variable, step)
        if terms:
            return np.asarray(np.sum(terms, axis=0))
    key = replace(case.key, step=step)
    evidence = context.evidence
    replay = evidence.replays.get("reduced_gradient")
    if context.phase == "applied_gradient" and replay is not None:
        found = replay.get(key)
        if found is not None:
            return take_rows(found, case)
    for trace in (evidence.reference, evidence.observed):
        for replica in (case.key.replica, -1):
            value = trace.get(replace(key, replica=replica))
            if value is not None:
                return take_rows(value, case)
    return None


def explain_by_micro_steps(context: Context) -> Iterator[Hypothesis]:
    """A whole number of micro-steps too much: k, 1/k, r/k or k/r.

    That gradients are accumulated is a fact that the tapes told: one of the two numbers
    must be the number of gradients which a step computed of each variable.
    """
    if context.phase in STATE:
        return
    made = context.evidence.observed.notes.get("micro_steps")
    cases = list(context.list_cases())
    if not isinstance(made, int) or made < 2:
        return
    fit = fit_cases(case for _, case in cases)
    if fit is None:
        return
    for other in range(1, 2 * made + 1):
        for ratio, words in (
            (made / other, f"{made}/{other}"),
            (other / made, f"{other}/{made}"),
        ):
            if other != made and abs(fit.ratio / ratio - 1) < _SAME:
                yield Hypothesis(
                    code="accumulation-scale",
                    predicted={i: ratio * case.expected for i, case in cases},
                    detail=f"of {made} micro-steps accumulated in a step it is {words} "
                    "times what it should be",
                    ratio=ratio,
                    of_due=True,
                )


def explain_by_factor(context: Context) -> Iterator[Hypothesis]:
    """One constant ratio over all wrong values, fitted."""
    if context.phase in STATE:
        return
    cases = list(context.list_cases())
    fit = fit_cases(case for _, case in cases)
    is_lone = sum(case.observed.size for _, case in cases) < 2
    if fit is None or (is_lone and fit.ratio != 0):
        return  # one number is some multiple of any other; that it is 0 says more
    detail = f"it is {fit.ratio:.8g} times what it should be"
    if fit.ratio == 0 and context.phase == "local_gradient":
        detail = (
            "it is 0 on all replicas together, as where nothing leads from their "
            "losses to the variable: stop_gradient, or an op without a gradient"
        )
    yield Hypothesis(
        code="scale-error",
        predicted={number: fit.ratio * case.expected for number, case in cases},
        detail=detail,
        ratio=fit.ratio,
        of_due=True,
    )


def explain_by_factors_of_steps(context: Context) -> Iterator[Hypothesis]:
    """One ratio in each step, another one in each: a count or a schedule is wrong."""
    if context.phase in STATE:
        return
    ratios: list[float] = []
    predicted: dict[int, Array] = {}
    for cases in context.list_steps().values():
        fit = fit_cases(case for _, case in cases)
        if fit is None or sum(case.observed.size for _, case in cases) < _FEW:
            return
        ratios.append(fit.ratio)
        predicted |= {number: fit.ratio * case.expected for number, case in cases}
    if len(ratios) > 1:
        words = ", ".join(f"{ratio:.6g}" for ratio in ratios)
        yield Hypothesis(
            code="scale-error",
            predicted=predicted,
            detail=f"it is {words} times what it should be, step by step",
            ratio=ratios[0],
            of_due=True,
        )


def is_sparse(context: Context, variable: str) -> bool:
    """Whether the replicas' own gradients of a variable are sparse."""
    for trace in (context.evidence.observed, context.evidence.reference):
        for _, value in trace.select(phase="local_gradient", variable=variable):
            return isinstance(value, SparseRows)
    return False
