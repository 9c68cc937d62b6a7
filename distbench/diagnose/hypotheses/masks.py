"""Elements that are left out of the sum."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from distbench.compare.arrays.ratio import fit_multiple
from distbench.diagnose.clues.addends import ADDED, Source, list_sources
from distbench.diagnose.clues.cases import carry_rows, find_tolerance
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.hypothesis import NONLINEAR, Hypothesis
from distbench.trace import TraceKey
from distbench.trace.numbers import Array

_MOST = 6
"""Of more replicas there are too many ways to leave some out."""


def explain_by_mask(context: Context) -> Iterator[Hypothesis]:
    """Every element is the sum over some of the replicas: top-k, or a random mask."""
    replicas = context.replicas
    if context.phase not in ADDED or not 1 < replicas <= _MOST:
        return
    for words, fed_back in (("", False), (", and adds them to its next one", True)):
        predicted: dict[int, Array] = {}
        kept_back: dict[TraceKey, tuple[Array | None, list[Array]]] = {}
        for source in list_sources(context):
            case = source.case
            if not source.arrived or case.observed.size < 2:
                continue
            terms = list(source.terms)
            last = replace(case.key, step=case.key.step - 1)
            if fed_back and last in kept_back:
                rows, rests = kept_back[last]
                terms = [
                    term + carry_rows(rest, rows, case.rows, term.shape)
                    for term, rest in zip(terms, rests, strict=True)
                ]
            nearest, parts = _find_nearest_subset(case.observed, terms)
            # Of so many choices for each element some come near anything.
            if context.matches(case, nearest):
                predicted[source.number] = nearest
            rests = [np.asarray(t - part) for t, part in zip(terms, parts, strict=True)]
            kept_back[case.key] = (case.rows, rests)
        if predicted:
            yield Hypothesis(
                code=NONLINEAR,
                predicted=predicted,
                detail="every replica leaves some elements of its gradient out of the "
                f"sum{words}",
                choices=2**replicas,
            )


def explain_by_own_draws(context: Context) -> Iterator[Hypothesis]:
    """Every replica leaves out other elements, by numbers that it draws for itself.

    One device leaves out elements whatever their values are, and has one draw for all:
    Σ_r m_r g_r in place of m Σ_r g_r.
    """
    if (
        context.phase != "reduced_gradient"
        or not 1 < context.replicas <= _MOST
        or context.draws_nothing
    ):
        return
    known = [
        (s, context.find_terms_of(s.case, s.case.key.variable))
        for s in list_sources(context)
        if context.is_changed_linearly(s.case)
    ]
    factor = _find_factor(context, known)
    if not factor:
        return
    where = f", at {context.drawn_at}" if context.drawn_at else ""
    for code, summed, words in (
        ("replicas-diverged", True, "leaves out other elements of the sum"),
        (NONLINEAR, False, "leaves out other elements of its gradient before the sum"),
    ):
        predicted: dict[int, Array] = {}
        for source, own in known:
            parts = [np.asarray(np.sum(own, axis=0))] if summed else own
            terms = [factor * part for part in parts]
            nearest, _ = _find_nearest_subset(source.case.observed, terms)
            if context.matches(source.case, nearest):
                predicted[source.number] = nearest
        yield Hypothesis(
            code=code,
            predicted=predicted,
            detail=f"the replicas draw different random numbers{where}, and by them "
            f"each {words} than the others",
            choices=2**context.replicas,
        )


def _find_factor(
    context: Context, known: Sequence[tuple[Source, Sequence[Array]]]
) -> float:
    """By which number one device multiplies what it does not leave out; 0 for none."""
    made, raw = [], []
    for source, own in known:
        allowed = find_tolerance(source.case, context.replicas)
        for left, term in zip(context.find_changed(source.case), own, strict=False):
            made.append(np.where(np.abs(left) > allowed, left, 0.0).ravel())
            raw.append(term.ravel())
    if not made:
        return 0.0
    handed, whole = np.concatenate(made), np.concatenate(raw)
    kept = handed != 0
    if np.all(kept | (whole == 0)):
        return 0.0
    return fit_multiple(handed[kept], whole[kept]) or 0.0


def _find_nearest_subset(
    seen: Array, terms: Sequence[Array]
) -> tuple[Array, list[Array]]:
    """Each element as the sum over some replicas, and what each gave of it."""
    best = 0 * seen
    given = [0 * seen for _ in terms]
    places = range(len(terms))
    for size in range(1, len(terms) + 1):
        for kept in itertools.combinations(places, size):
            value = np.asarray(np.sum([terms[place] for place in kept], axis=0))
            is_nearer = np.abs(value - seen) < np.abs(best - seen)
            best = np.where(is_nearer, value, best)
            for place in places:
                gives = terms[place] if place in kept else 0 * seen
                given[place] = np.where(is_nearer, gives, given[place])
    return best, given
