"""Causes that can show in any phase."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from distbench.diagnose.clues.cases import take_rows
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.fit import fit_cases
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.diagnose.names import name_lag
from distbench.trace import GRADIENTS, STATE, WHOLE
from distbench.trace.numbers import Array

_FEW = 4
"""Fewer numbers do not show that one ratio is that of all."""


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
    replay = evidence.fed.replays.get("reduced_gradient")
    if context.phase == "applied_gradient" and replay is not None:
        found = replay.get(key)
        if found is not None:
            return take_rows(found, case)
    for trace in (evidence.reference, evidence.observed):
        for replica in (case.key.replica, WHOLE):
            value = trace.get(replace(key, replica=replica))
            if value is not None:
                return take_rows(value, case)
    return None


def explain_by_factor(context: Context) -> Iterator[Hypothesis]:
    """One constant ratio over all wrong values, fitted."""
    if context.phase in STATE:
        return
    cases = list(context.list_cases())
    fit = fit_cases(case for _, case in cases)
    if fit is None:
        return
    detail = f"it is {fit.ratio:.8g} times what it should be"
    if fit.ratio == 0 and context.phase == "local_gradient":
        detail = (
            "it is 0 on all replicas together, as where nothing leads from their "
            "losses to the variable: stop_gradient, or an op without a gradient"
        )
        if any(np.any(term) for _, case in cases for term in case.terms):
            detail = (
                "it is 0 in the sum alone: the replicas' gradients cancel, as where "
                "each decides by its own examples which way to go"
            )
    yield Hypothesis(
        code="scale-error",
        predicted={number: fit.ratio * case.expected for number, case in cases},
        detail=detail,
        ratio=fit.ratio,
        of_due=True,
        # One number is some multiple of any other; that it is 0 says more.
        fitted=int(fit.ratio != 0),
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
            fitted=len(ratios),
        )
