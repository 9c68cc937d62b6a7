"""Clipping before the reduction: Σ clip(g_r) in place of clip(Σ g_r)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from distbench.compare.arrays.ratio import fit_ratio
from distbench.diagnose.clues.addends import (
    ADDED,
    Source,
    list_rounded,
    list_sources,
    tell_joined,
    tell_own,
)
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.diagnose.hypotheses.clips_of_sums import DIFFERENT, SmallSums, are_apart
from distbench.diagnose.hypotheses.limits import (
    find_below,
    fit_limit,
    sum_clipped,
)
from distbench.diagnose.hypotheses.norms import (
    ELEMENTS,
    TENSOR,
    JointNorm,
    Norm,
    list_global_norms,
    list_norms,
)
from distbench.diagnose.hypotheses.reduction import name_missing_sum
from distbench.trace.numbers import Array, densify

_JOINED: tuple[tuple[str, Callable[[Array], Array]], ...] = (
    (
        "the root of the sum of the squares of",
        lambda norms: np.sqrt(np.sum(norms**2, axis=0)),
    ),
    ("the largest of", lambda norms: np.max(norms, axis=0)),
    ("a sum or mean of", lambda norms: np.sum(norms, axis=0)),
)
"""What may be taken for the norm of a sum, of those of its addends: [addends, ...]."""


def explain_by_clip(context: Context) -> Iterator[Hypothesis]:
    """Each replica's gradient scaled down to a norm c, and then added up.

    The norm may be that of a tensor, of all of a replica's gradients, of each unit of a
    layer or of each element, and c a share of the variable's. c is fitted.
    """
    if context.phase not in ADDED:
        return
    found, rounded = list_sources(context), list_rounded(context)
    small = SmallSums(context, found)
    n = context.replicas
    for words, norm, sources in list_norms(context, found):
        for mean in (1.0,) if n == 1 else (1.0, 1.0 / n):
            limit = fit_limit(sources, norm, mean)
            if limit is None or _is_refuted(context, sources, norm, limit):
                continue
            if norm is ELEMENTS and _leaves_signs(context, sources, limit):
                continue
            predicted = {s.number: sum_clipped(s, norm, limit, mean) for s in sources}
            if mean == 1:
                # Of a mean no addends are left as they are.
                predicted |= small.predict(norm, limit)
            what = words.format(tell_own(context, limit))
            if n == 1:
                # Nothing is added up, and one size is a factor as well as a limit.
                if are_apart(sources, norm, limit):
                    yield _name_alone(context, sources, norm, what, predicted)
                continue
            how = tell_joined(context, mean)
            is_open = mean == 1 and context.times_share == 1
            if is_open and _clips_all(sources, norm, limit):
                how += f" (to {n} times that, if they are averaged)"
            yield Hypothesis(
                code="clip-before-reduction",
                predicted=predicted,
                detail=f"every replica clips {what} before the "
                f"replicas' gradients are {how}",
                of_due=True,
                fitted=1,
                rounded=find_below(rounded, norm, limit) if mean == 1 else (),
            )


def _name_alone(
    context: Context,
    sources: Sequence[Source],
    norm: Norm,
    what: str,
    predicted: dict[int, Array],
) -> Hypothesis:
    """A clip in a step of one replica: to another limit, or by another norm."""
    due = [replace(s, case=replace(s.case, observed=s.case.expected)) for s in sources]
    limit = fit_limit(due, norm)
    if all(context.are_near(s.case, s.case.expected, s.terms[0]) for s in sources):
        code, otherwise = "hyperparameter-differs", "does not"
    elif limit is not None and all(
        context.are_near(s.case, s.case.expected, sum_clipped(s, norm, limit))
        for s in sources
    ):
        code, otherwise = "hyperparameter-differs", f"to {limit:.6g}"
    else:
        code, otherwise = "clip-before-reduction", "by another norm, as of a whole"
    return Hypothesis(
        code=code,
        predicted=predicted,
        detail=f"a step of one replica clips {what}, and one device {otherwise}",
        of_due=True,
        fitted=1,
    )


def explain_by_joint_clip(context: Context) -> Iterator[Hypothesis]:
    """The sum is clipped by a norm that is made of those of its addends.

    All addends are scaled alike, so a factor would do where they were so once: several
    norms have to lead to the same limit.
    """
    if context.phase not in ADDED or context.replicas == 1:
        return
    sources = list_sources(context)
    if not all(_is_scaled_sum(context, source) for source in sources):
        return
    rounded, small = list_rounded(context), SmallSums(context, sources)
    norms: list[tuple[str, Norm]] = [("each variable's gradient", TENSOR)]
    norms += [("all gradients", norm) for norm in list_global_norms(context)]
    for (of_what, norm), (made, join) in itertools.product(norms, _JOINED):
        joint = JointNorm(norm, join)
        limit = fit_limit(sources, joint)
        if limit is None or not are_apart(sources, joint, limit):
            continue
        yield Hypothesis(
            code="clip-before-reduction",
            predicted={
                **{s.number: sum_clipped(s, joint, limit) for s in sources},
                **small.predict(joint, limit),
            },
            detail=f"the norm of {of_what} is clipped to "
            f"{tell_own(context, limit):.6g}, and taken for it is {made} the replicas' "
            "own norms, which is not that of their sum",
            of_due=True,
            fitted=1,
            rounded=find_below(rounded, joint, limit),
        )


def _clips_all(sources: Sequence[Source], norm: Norm, limit: float) -> bool:
    """Whether every addend is as large as the limit then."""
    sizes = [
        np.ravel(norm(source, place))
        for source in sources
        for place, term in enumerate(source.terms)
        if np.any(term)
    ]
    return all(bool(np.all(size >= limit)) for size in sizes)


def _is_scaled_sum(context: Context, source: Source) -> bool:
    """Whether a value is the sum of its addends times a number."""
    total = np.sum(source.terms, axis=0)
    fit = fit_ratio(source.case.observed, total)
    case = source.case
    return fit is not None and context.matches(case, fit.ratio * total)


def _leaves_signs(context: Context, sources: Sequence[Source], limit: float) -> bool:
    """Whether all elements are cut, but for rounding: then the signs were taken."""
    for source in sources:
        signs = np.asarray(sum(limit * np.sign(term) for term in source.terms))
        if not context.are_near(
            source.case, sum_clipped(source, ELEMENTS, limit), signs
        ):
            return False
    return True


def _is_refuted(
    context: Context, sources: Sequence[Source], norm: Norm, limit: float
) -> bool:
    """Whether what is right of the same variables exceeds the limit.

    Of own gradients that of another replica. Of sums that of another step, where wrong
    ones are as long as a factor makes them as well: a clip may begin late.
    """
    if context.phase == "local_gradient":
        return any(_exceeds_own(context, one, norm, limit) for one in sources)
    return all(_is_scaled_sum(context, one) for one in sources) and any(
        _exceeds_sum(context, one, norm, limit) for one in sources
    )


def _exceeds_own(context: Context, source: Source, norm: Norm, limit: float) -> bool:
    """Whether another replica's own gradient is right and exceeds the limit."""
    for replica in range(context.replicas):
        key = source.case.key.at(replica)
        value = context.evidence.observed.get(key)
        if key not in context.right or value is None:
            continue
        other = replace(source, case=replace(source.case, key=key))
        size = norm.relate(other, densify(value))
        if size is not None and np.any(np.isfinite(size) & (size > DIFFERENT * limit)):
            return True
    return False


def _exceeds_sum(context: Context, source: Source, norm: Norm, limit: float) -> bool:
    """Whether a clip would have changed a right sum of the variable, in another step.

    Sparse sums have other rows in each step, and what a program makes of its gradients
    before their sum is not looked at.
    """
    case = source.case
    if case.rows is not None or context.find_changed(case):
        return False
    for step in range(context.evidence.observed.steps):
        key = replace(case.key, step=step)
        terms = context.find_terms_of(case, key.variable, step)
        if key not in context.right or len(terms) != len(source.terms):
            continue
        other = replace(source, case=replace(case, key=key), terms=terms)
        clipped = sum_clipped(other, norm, DIFFERENT * limit)
        if not context.are_near(case, clipped, np.asarray(sum(terms))):
            return True
    return False


def explain_by_own_clip(context: Context) -> Iterator[Hypothesis]:
    """Each replica goes on with its own gradient, clipped; nobody sums.

    That is N times its share, where shares are taken for it.
    """
    if context.phase != "reduced_gradient" or context.replicas == 1:
        return
    found = list_sources(context, own=True)
    code, times = name_missing_sum(context), context.times_share
    for words, norm, sources in list_norms(context, found):
        limit = fit_limit(sources, norm, times)
        if limit is not None:
            what = words.format(tell_own(context, limit))
            yield Hypothesis(
                code=code,
                predicted={
                    s.number: sum_clipped(s, norm, limit, times) for s in sources
                },
                detail=f"each replica clips {what} and goes on with what it has",
                fitted=1,
            )
