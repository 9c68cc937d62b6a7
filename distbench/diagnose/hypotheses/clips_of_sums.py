"""Clips of sums: what one device clips, and sums that are made of small addends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from distbench.compare.arrays.pair import Pair
from distbench.diagnose.clues.addends import (
    Source,
    find_untouched,
    list_known,
    tell_own,
)
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.diagnose.hypotheses.limits import find_share, fit_limit, sum_clipped
from distbench.diagnose.hypotheses.norms import Norm, list_norms
from distbench.diagnose.hypotheses.reduction import CHANGED_ONCE
from distbench.trace import WHOLE
from distbench.trace.numbers import Array, densify

DIFFERENT = 1.01
"""Norms that are closer than this tell a limit no better than one of them would."""


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
        if not are_apart(due, _OfSum(norm), limit) and not _clips_elsewhere(
            context, due, norm, limit
        ):
            continue
        clip = words.format(limit)
        yield Hypothesis(
            code="clip-before-reduction",
            predicted={
                s.number: sum_clipped(s, norm, limit / context.times_share)
                for s in plain
            },
            detail=f"one device clips {clip}, and every replica its own gradients "
            "before they are added up: none is so large, and their sum is",
            of_due=True,
        )
        n = context.replicas
        is_below = n > 1 and bool(np.all(_measure_all(due, _OfSum(norm)) <= n * limit))
        yield Hypothesis(
            code="hyperparameter-differs",
            predicted={s.number: np.sum(s.terms, axis=0) for s in plain},
            detail=f"one device clips {clip}, and the cluster clips nothing"
            + is_below * f", or the mean, which is then added up: to {n} times that",
            of_due=True,
            advice=is_below * f"Make it equal on both; of a mean: {CHANGED_ONCE}",
        )


def explain_by_clip_of_mean(context: Context) -> Iterator[Hypothesis]:
    """The mean is clipped, and what that gives is added up: to N times the limit.

    N min(1, c/‖G/N‖) G/N = min(1, N c/‖G‖) G. Told by sums on both sides of N c: of
    larger ones alone it is a factor of N, and smaller ones are not clipped at all.
    """
    n = context.replicas
    if context.phase != "reduced_gradient" or n == 1:
        return
    due = [_make_due(source) for source in list_known(context)]
    for words, norm, limit in _list_due_clips(context, due):
        of_sum = _OfSum(norm)
        sizes = _measure_all(due, of_sum)
        if not sizes.size or not sizes.min() <= n * limit < sizes.max():
            continue
        yield Hypothesis(
            code="double-reduction",
            predicted={s.number: sum_clipped(s, of_sum, n * limit) for s in due},
            detail=f"one device clips {words.format(limit)}, and the cluster to {n} "
            "times that, as where the mean is clipped, and then added up",
            of_due=True,
            advice=CHANGED_ONCE,
        )


def explain_by_clip_to_other_limit(context: Context) -> Iterator[Hypothesis]:
    """The sum is clipped as on one device, and to another limit, such as an N-th.

    Both are fitted: one to what is due, of which it has to make all, the other one to
    what was observed. Of sums beyond both, min(1, c'/‖G‖) G = c'/c min(1, c/‖G‖) G: a
    factor behind the clip does the same, and both are told.
    """
    if context.phase != "reduced_gradient":
        return
    sums = [_join_terms(source) for source in list_known(context)]
    due = [_make_due(source) for source in sums]
    right = {(key.step, key.variable) for key in context.right}
    for words, norm, limit in _list_due_clips(context, due):
        of_sum = _OfSum(norm)
        other = fit_limit(sums, of_sum)
        if other is None or not are_apart(due, of_sum, limit):
            continue  # one norm may be due to anything
        spared = [
            (case, size)
            for case, size in _list_elsewhere(context, due, norm)
            if (case.key.step, case.key.variable) in right and np.any(size)
        ]
        if not all(_is_clipped(context, case, size, other) for case, size in spared):
            continue
        times = other / limit
        is_factor = not spared and all(
            context.matches(one.case, times * one.case.expected) for one in sums
        )
        yield Hypothesis(
            code="hyperparameter-differs",
            predicted={s.number: sum_clipped(s, of_sum, other) for s in sums},
            detail=f"one device clips {words.format(limit)}, and "
            + (
                f"the cluster has {times:.6g} times what that leaves: it clips to "
                f"{other:.6g}, or there is a factor behind the clip"
                if is_factor
                else f"the cluster to {other:.6g}, {times:.6g} times that"
            ),
            ratio=times,
            of_due=True,
            fitted=1,
        )


def _measure_all(sources: Sequence[Source], norm: Norm) -> Array:
    """The norms of sums."""
    return np.concatenate([np.ravel(norm(one, 0)) for one in sources] or [np.zeros(0)])


def _list_due_clips(
    context: Context, due: Sequence[Source]
) -> Iterator[tuple[str, Norm, float]]:
    """What one device may clip sums by, and to which limit: it makes all of them."""
    for words, norm, _ in list_norms(context, (), of="the sum"):
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
    is_smaller = False
    for case, size in _list_elsewhere(context, due, norm):
        if not _is_clipped(context, case, size, limit):
            return False
        is_smaller = is_smaller or bool(np.all(size <= limit) and np.any(size))
    return is_smaller


def _list_elsewhere(
    context: Context, due: Sequence[Source], norm: Norm
) -> Iterator[tuple[Pair, float | Array]]:
    """What one device has of the same variables in other steps, and its norm.

    It is expected before anything is done to it, and observed after.
    """
    reference = context.evidence.reference
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
            assert size is not None  # as of what is due
            yield case, size


def _is_clipped(
    context: Context, case: Pair, size: float | Array, limit: float
) -> bool:
    """Whether a clip to a limit makes what was observed of what was expected."""
    return context.matches(case, find_share(size, limit) * case.expected)


def _make_due(source: Source) -> Source:
    """What is due of a value, as if it had been seen to be made of the sum."""
    case = replace(source.case, observed=source.case.expected)
    return replace(_join_terms(source), case=case)


def _join_terms(source: Source) -> Source:
    """A value as if it had been made of the sum alone."""
    total = np.sum(source.terms, axis=0)
    return replace(source, terms=(total,), replicas=source.replicas[:1])


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


def are_apart(sources: Sequence[Source], norm: Norm, limit: float) -> bool:
    """Whether what is clipped has norms that differ by more than a rounding."""
    sizes = _measure_all(sources, norm)
    clipped = sizes[sizes > limit]
    return clipped.size > 0 and bool(clipped.max() > DIFFERENT * clipped.min())


class SmallSums:
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
        own = tell_own(self._context, limit)
        due = {n for n in predicted if self._is_due(self._untouched[n], norm, own)}
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
