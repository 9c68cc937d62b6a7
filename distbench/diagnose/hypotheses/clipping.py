"""Clipping before the reduction: Σ clip(g_r) in place of clip(Σ g_r)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from distbench.compare.ratio import fit_ratio
from distbench.compare.values import Array, densify
from distbench.diagnose.addends import (
    ADDED,
    Source,
    find_untouched,
    list_sources,
    split_slices,
)
from distbench.diagnose.context import Context, Hypothesis
from distbench.diagnose.hypotheses.limits import find_share, fit_limit, sum_clipped
from distbench.diagnose.hypotheses.norms import (
    ELEMENTS,
    TENSOR,
    UNITS,
    JointNorm,
    Norm,
    Ratio,
    SliceNorm,
    list_global_norms,
    measure_units,
)
from distbench.diagnose.hypotheses.reduction import name_missing_sum
from distbench.trace import WHOLE

_JOINED: tuple[tuple[str, Callable[[Array], Array]], ...] = (
    (
        "the root of the sum of the squares of",
        lambda norms: np.sqrt(np.sum(norms**2, axis=0)),
    ),
    ("the largest of", lambda norms: np.max(norms, axis=0)),
    ("a sum or mean of", lambda norms: np.sum(norms, axis=0)),
)
"""What may be taken for the norm of a sum, of those of its addends: [addends, ...]."""
_DIFFERENT = 1.01
"""Norms that are closer than this tell a limit no better than one of them would."""


def explain_by_clip(context: Context) -> Iterator[Hypothesis]:
    """Each replica's gradient scaled down to a norm c, and then added up.

    The norm may be that of a tensor, of all of a replica's gradients, of each unit of a
    layer or of each element, and c a share of the variable's. c is fitted.
    """
    if context.phase not in ADDED:
        return
    found = list_sources(context)
    small = _Small(context, found)
    n = context.replicas
    for words, norm, sources in list_norms(context, found):
        for mean in (1.0,) if n == 1 else (1.0, 1.0 / n):
            limit = fit_limit(sources, norm, mean)
            if limit is None or _is_refuted(context, sources, norm, limit):
                continue
            if norm is ELEMENTS and _leaves_signs(context, sources, limit):
                continue
            predicted = {s.number: sum_clipped(s, norm, limit, mean) for s in sources}
            yield Hypothesis(
                code="clip-before-reduction",
                predicted={
                    **predicted,
                    **small.predict(norm, limit),
                },
                detail=f"every replica clips {words.format(limit)} before the "
                "replicas' gradients are added up",
                of_due=True,
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
    small = _Small(context, sources)
    norms: list[tuple[str, Norm]] = [("each variable's gradient", TENSOR)]
    norms += [("all gradients", norm) for norm in list_global_norms(context)]
    for (of_what, norm), (made, join) in itertools.product(norms, _JOINED):
        joint = JointNorm(norm, join)
        limit = fit_limit(sources, joint)
        if limit is None or not _are_apart(sources, joint, limit):
            continue
        yield Hypothesis(
            code="clip-before-reduction",
            predicted={
                **{s.number: sum_clipped(s, joint, limit) for s in sources},
                **small.predict(joint, limit),
            },
            detail=f"the norm of {of_what} is clipped to {limit:.6g}, and taken for it "
            f"is {made} the replicas' own norms, which is not that of their sum",
            of_due=True,
        )


def _is_scaled_sum(context: Context, source: Source) -> bool:
    """Whether a value is the sum of its addends times a number."""
    total = np.sum(source.terms, axis=0)
    fit = fit_ratio(source.case.observed, total)
    case = source.case
    return fit is not None and context.matches(case, fit.ratio * total)


def _are_apart(sources: Sequence[Source], norm: Norm, limit: float) -> bool:
    """Whether what is clipped has norms that differ by more than a rounding."""
    sizes = np.concatenate([np.ravel(norm(one, 0)) for one in sources])
    clipped = sizes[sizes > limit]
    return clipped.size > 0 and bool(clipped.max() > _DIFFERENT * clipped.min())


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
    """Whether another replica's own gradient of the same variable exceeds the limit."""
    if context.phase != "local_gradient":
        return False
    for source in sources:
        for replica in range(context.replicas):
            key = source.case.key.at(replica)
            value = context.evidence.observed.get(key)
            if key not in context.right or value is None:
                continue
            other = replace(source, case=replace(source.case, key=key))
            size = norm.relate(other, densify(value))
            if size is not None and np.any(
                np.isfinite(size) & (size > _DIFFERENT * limit)
            ):
                return True
    return False


def explain_by_clip_of_none(context: Context) -> Iterator[Hypothesis]:
    """What one device clips and no replica does: none has so large a gradient, or else.

    Nothing was done to the addends, so the limit is read off what is due: one has to
    make all of it, of sums of different norms. Where replicas have gradients beyond
    it, they do not clip at all.
    """
    if context.phase != "reduced_gradient":
        return
    plain = list(find_untouched(context).values())
    due = [_make_due(source) for source in plain]
    for words, norm, limit in _list_due_clips(context, due):
        if not _are_apart(due, _OfSum(norm), limit) and not _clips_elsewhere(
            context, due, norm, limit
        ):
            continue
        clip = words.format(limit)
        yield Hypothesis(
            code="clip-before-reduction",
            predicted={s.number: sum_clipped(s, norm, limit) for s in plain},
            detail=f"every replica clips {clip} before the replicas' gradients are "
            "added up: none is so large, and their sum is",
            of_due=True,
        )
        yield Hypothesis(
            code="hyperparameter-differs",
            predicted={s.number: np.sum(s.terms, axis=0) for s in plain},
            detail=f"one device clips {clip}, and the cluster clips nothing",
            of_due=True,
        )


def _list_due_clips(
    context: Context, due: Sequence[Source]
) -> Iterator[tuple[str, Norm, float]]:
    """What one device may clip sums by, and to which limit: it makes all of them."""
    for words, norm, _ in list_norms(context, ()):
        if any(norm.relate(one, one.terms[0]) is None for one in due):
            continue
        of_sum = _OfSum(norm)
        limit = fit_limit(due, of_sum)
        if limit is not None and all(
            context.matches(one.case, sum_clipped(one, of_sum, limit)) for one in due
        ):
            yield words, norm, limit


def _clips_elsewhere(
    context: Context, due: Sequence[Source], norm: Norm, limit: float
) -> bool:
    """Whether one device handles its other gradients of the same variables like that.

    Those are told by what it has before and after: smaller ones have to be left as they
    are, and there must be some.
    """
    reference = context.evidence.reference
    is_smaller = False
    for source in due:
        key = replace(source.case.key, phase="local_gradient", replica=WHOLE)
        for step in range(reference.steps):
            before = reference.get(replace(key, step=step))
            after = reference.get(replace(key, step=step, phase="reduced_gradient"))
            if step == source.case.key.step or before is None or after is None:
                continue
            case = replace(
                source.case,
                key=replace(source.case.key, step=step),
                observed=densify(after),
                expected=densify(before),
                rows=None,
            )
            size = norm.relate(replace(source, case=case), case.expected)
            share = 1.0 if size is None else find_share(size, limit)
            if size is None or not context.matches(case, share * case.expected):
                return False
            is_smaller = is_smaller or bool(np.all(size <= limit) and np.any(size))
    return is_smaller


def _make_due(source: Source) -> Source:
    """What is due of a value, as if it had been seen to be made of the sum."""
    case = replace(source.case, observed=source.case.expected)
    total = np.sum(source.terms, axis=0)
    return replace(source, case=case, terms=(total,), replicas=source.replicas[:1])


@dataclass(frozen=True, slots=True)
class _OfSum:
    """A norm of sums, in the place of one of addends."""

    norm: Norm

    def __call__(self, source: Source, place: int) -> float | Array:
        """Norm of the sum at a place, which has to be known."""
        found = self.norm.relate(source, source.terms[place])
        assert found is not None
        return found

    def relate(self, source: Source, value: Array) -> float | Array | None:
        """Norm of another value of the variable; None where it is not known."""
        return self.norm.relate(source, value)


def explain_by_own_clip(context: Context) -> Iterator[Hypothesis]:
    """Each replica goes on with its own gradient, clipped; nobody sums."""
    if context.phase != "reduced_gradient" or context.replicas == 1:
        return
    found = list_sources(context, own=True)
    code = name_missing_sum(context)
    for words, norm, sources in list_norms(context, found):
        limit = fit_limit(sources, norm)
        if limit is not None:
            yield Hypothesis(
                code=code,
                predicted={s.number: sum_clipped(s, norm, limit) for s in sources},
                detail=f"each replica clips {words.format(limit)} and goes on with "
                "what it has",
            )


def list_norms(
    context: Context, sources: Sequence[Source]
) -> Iterator[tuple[str, Norm, Sequence[Source]]]:
    """What a limit is called, of which norm it is, and what is clipped to it."""
    slices = [split_slices(context, source) for source in sources]
    # Of dense gradients alone, norms of slices are those of what they make up.
    is_sparse = any(
        one is not other for one, other in zip(sources, slices, strict=True)
    )
    tensor = "the norm of each variable's gradient to {:.6g}"
    yield tensor, TENSOR, sources
    if is_sparse:
        yield tensor, SliceNorm(context), sources
    every = "the global norm of each replica's gradients to {:.6g}"
    for norm in list_global_norms(context):
        yield every, norm, sources
    yield f"{tensor} times that of the variable", Ratio(context), sources
    element = "its gradient's elements to ±{:.6g}"
    yield element, ELEMENTS, sources
    if is_sparse:
        yield f"{element}, slice by slice", ELEMENTS, slices
    unit = "the norm of each unit's gradient to {:.6g}"
    yield unit, UNITS, sources
    by_unit = Ratio(context, measure_units)
    yield f"{unit} times that of the unit's weights", by_unit, sources


class _Small:
    """Sums of addends that all were too small to be clipped, unlike the sums.

    Nothing was done to them, which is wrong only if one device clips the sum: that it
    came to what the same clip makes of it shows that it does. So does that all sums
    came to what some other clip makes of them: one device may go by the norm of more
    than the cluster does, as of all of a variable that the cluster has in shards.

    Args:
        context: The wrong values.
        sources: Those to whose addends something was done.
    """

    def __init__(self, context: Context, sources: Sequence[Source]) -> None:
        self._context = context
        self._sources = sources
        self._untouched = find_untouched(context)

    def predict(self, norm: Norm, limit: float) -> dict[int, Array]:
        """What they come to, where each replica clips by a norm to a limit."""
        predicted = {
            number: sum_clipped(source, norm, limit)
            for number, source in self._untouched.items()
        }
        due = {n for n in predicted if self._is_due(self._untouched[n], norm, limit)}
        if len(due) < len(predicted) and self._are_due_clipped:
            return predicted
        return {number: predicted[number] for number in due}

    def _is_due(self, source: Source, norm: Norm, limit: float) -> bool:
        """Whether one device makes of the sum what the same clip makes of it."""
        total = np.sum(source.terms, axis=0)
        size = norm.relate(source, total)
        clipped = total if size is None else total * find_share(size, limit)
        return self._context.are_near(source.case, source.case.expected, clipped)

    @cached_property
    def _are_due_clipped(self) -> bool:
        """Whether it clips all sums, by any one norm; asked once for all of them."""
        all_of_them = (*self._sources, *self._untouched.values())
        due = [_make_due(source) for source in all_of_them]
        return any(_list_due_clips(self._context, due))
