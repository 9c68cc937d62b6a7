"""A rule that is not linear, applied to each replica's gradient before the sum."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from distbench.compare.arrays.pair import DIRECTION
from distbench.compare.arrays.ratio import fit_common_ratio, fit_ratio
from distbench.diagnose.clues.addends import ADDED, list_sources, tell_own
from distbench.diagnose.clues.cases import find_tolerance, take_rows
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.hypothesis import NONLINEAR, Hypothesis
from distbench.diagnose.hypotheses.norms import (
    TENSOR,
    Measure,
    Ratio,
    SliceNorm,
    list_global_norms,
)
from distbench.trace.numbers import Array, measure_norm, measure_size

_FEW = 30
"""Fewer numbers do not tell noise from anything else."""
_ENOUGH_TOGETHER = 20
_SAME = 0.02
"""Share by which rounding may change a factor of one element."""
_MOST_SPREADS = 5.0
"""Noise goes no farther in a few numbers."""


def explain_by_sign(context: Context) -> Iterator[Hypothesis]:
    """Signs are added up: as they are, times a mean size, or times any factor."""
    if context.phase not in ADDED or context.replicas == 1:
        return
    sources = list_sources(context)
    for words, scale in (
        ("its gradient by its sign", lambda _: 1 / context.times_share),
        (
            "its gradient by its sign times its mean absolute value",
            lambda term: float(np.mean(np.abs(term))) if term.size else 0.0,
        ),
        ("its gradient by its sign times its largest element", measure_size),
    ):
        signs = {
            s.number: np.asarray(
                sum((scale(t) * np.sign(t) for t in s.terms), 0 * s.case.expected)
            )
            for s in sources
        }
        yield Hypothesis(
            code=NONLINEAR, predicted=signs, detail=f"every replica replaces {words}"
        )
    yield Hypothesis(
        code=NONLINEAR,
        predicted={
            s.number: np.sign(sum((np.sign(t) for t in s.terms), 0 * s.case.expected))
            for s in sources
        },
        detail="the replicas vote: the sign of the sum of their signs",
    )
    votes = {s.number: np.asarray(sum(np.sign(t) for t in s.terms)) for s in sources}
    predicted = {}
    for source in sources:
        fit = fit_ratio(source.case.observed, votes[source.number])
        if fit is not None and source.arrived and source.case.observed.size >= 6:
            predicted[source.number] = fit.ratio * votes[source.number]
    if predicted:
        # Where all votes cancel there is nothing to fit, and any multiple is 0.
        predicted |= {n: vote for n, vote in votes.items() if not vote.any()}
    yield Hypothesis(
        code=NONLINEAR,
        predicted=predicted,
        detail="every replica replaces its gradient by a multiple of its sign",
    )
    # One multiple for all of them: those of a few numbers have it as well.
    arrived = [s for s in sources if s.arrived]
    fit = fit_common_ratio((s.case.observed, votes[s.number]) for s in arrived)
    if fit is not None and sum(s.case.observed.size for s in arrived) >= _FEW:
        yield Hypothesis(
            code=NONLINEAR,
            predicted={number: fit.ratio * vote for number, vote in votes.items()},
            detail=f"every replica replaces its gradient by "
            f"{tell_own(context, fit.ratio):.6g} times its sign",
            fitted=1,
        )


def explain_by_unit_norm(context: Context) -> Iterator[Hypothesis]:
    """Every addend is scaled to the same size: Σ c g_r / ‖g_r‖.

    The size is a norm or the largest element, of each variable's gradient or of all of
    a replica's; c is 1 or fitted over everything that is wrong. Of addends that are all
    equally large any constant factor would say the same, so their sizes must differ.
    """
    if context.phase not in ADDED:
        return
    sources = list_sources(context)
    for words, measure in _list_sizes(context):
        norms = [
            (float(measure(source, place)), bool(np.any(term)))
            for source in sources
            for place, term in enumerate(source.terms)
        ]
        # An addend of 0 is that at any size.
        told = [norm for norm, has_any in norms if has_any]
        if not told or min(norms)[0] == 0 or max(told) < 1.01 * min(told):
            continue
        sums = {
            s.number: np.asarray(
                sum(t / measure(s, place) for place, t in enumerate(s.terms))
            )
            for s in sources
        }
        fit = fit_common_ratio(
            (s.case.observed, sums[s.number]) for s in sources if s.arrived
        )
        one = 1 / context.times_share
        lengths = ((one, 0),) if fit is None else ((one, 0), (fit.ratio, 1))
        for length, fitted in lengths:
            yield Hypothesis(
                code=NONLINEAR,
                predicted={number: length * value for number, value in sums.items()},
                detail=f"every replica scales "
                f"{words.format(tell_own(context, length))} before the sum",
                fitted=fitted,
            )


def _list_sizes(context: Context) -> Iterator[tuple[str, Measure]]:
    yield "its gradient to a norm of {:.6g}", TENSOR
    yield "its gradient to a norm of {:.6g}", SliceNorm(context)
    for norm in list_global_norms(context):
        yield "all its gradients to a global norm of {:.6g}", norm
    yield (
        "its gradient to {:.6g} times the norm of the variable",
        Ratio(context),
    )
    yield (
        "its gradient to a largest element of {:.6g}",
        lambda source, place: measure_size(source.terms[place]),
    )
    yield (
        "its gradient to a mean absolute value of {:.6g}",
        lambda source, place: float(np.mean(np.abs(source.terms[place]))),
    )


def explain_by_own_change(context: Context) -> Iterator[Hypothesis]:
    """Each replica does to its own gradient what one device does to the sum.

    Whatever that is: it is not known, but what comes of it on one device is seen. What
    comes out as large however large the gradient is, as a matrix that is made
    orthogonal, is mostly averaged and not added up.
    """
    is_reduced = context.phase == "reduced_gradient" and not context.is_right_elsewhere
    if not is_reduced or context.evidence.fed.apart is None:
        return
    changed = {
        source.number: made
        for source in list_sources(context)
        if (made := context.find_changed(source.case))
    }
    for combine, words in ((np.sum, ""), (np.mean, ", and the replicas' are averaged")):
        yield Hypothesis(
            code=NONLINEAR,
            predicted={
                number: np.asarray(combine(made, axis=0))
                for number, made in changed.items()
            },
            detail="every replica does to its own gradient what one device does to "
            f"the sum{words}",
        )


def explain_by_own_noise(context: Context) -> Iterator[Hypothesis]:
    """Each replica adds numbers of its own to the sum, so what they hold is not equal.

    Whatever the numbers are: the step draws some, and what the replicas differ by has
    nothing to do with their own gradients, at four standard errors. Before the sum
    they would be in that of all.
    """
    if context.phase != "reduced_gradient" or not context.drawn_at:
        return
    related: list[float] = []
    predicted: dict[int, Array] = {}
    for number, case in context.list_cases():
        held = context.evidence.observed.get_replicas(case.key)
        seen = [take_rows(value, case) for value in held]
        if all(context.matches(case, value) for value in seen):
            return
        predicted[number] = case.observed
        terms = context.find_terms(case)
        if len(terms) == len(seen):
            own = terms[case.key.replica] - np.mean(terms, axis=0)
            added = case.observed - np.mean(seen, axis=0)
            size = measure_norm(own) * measure_norm(added)
            related.append(float(np.sum(own * added)) / size if size else 0.0)
        elif not any(context.are_near(case, value, case.expected) for value in seen):
            return  # no replica shows that the sum itself is right
    numbers = sum(value.size for value in predicted.values())
    if numbers < _FEW or abs(sum(related)) * np.sqrt(numbers) > 4 * len(related):
        return
    yield Hypothesis(
        code="replicas-diverged",
        predicted=predicted,
        detail="each replica adds other numbers to the sum, which have nothing to do "
        f"with its gradient, as where it draws its own at {context.drawn_at}",
    )


def explain_by_noise(context: Context) -> Iterator[Hypothesis]:
    """What is added has nothing to do with the gradient: mean 0, one spread.

    Told from an unknown cause by three facts, each at four standard errors: no ratio,
    no relation of its size with the gradient's size, and no repetition over the steps,
    neither of what is added nor of the multiple of the gradient that it makes.
    That nothing is related proves little, so only where the cluster's step or that of
    one device is known to draw numbers.
    """
    if context.phase not in ADDED or not context.draws_some:
        return
    if any(case.against == DIRECTION for case in context.cases):
        return  # no ratio is left where one was fitted
    predicted: dict[int, Array] = {}
    earlier: dict[tuple[int, str], tuple[Array, Array]] = {}
    for source in list_sources(context):
        case = source.case
        added = case.observed - case.expected
        small = np.abs(added) <= find_tolerance(case, context.replicas)
        is_told = source.arrived and added.size >= _FEW
        if not is_told or np.all(small) or not np.all(added):
            continue
        added = added.ravel()
        place = (case.key.step, case.key.variable)
        others = [other for known, other in earlier.items() if known != place]
        seen = added, case.expected.ravel()
        if any(_are_multiples(seen, other) for other in others):
            continue
        if _is_noise(*seen, [other for other, _ in others], errors=4):
            predicted[source.number] = case.observed
            earlier[place] = seen
    if predicted:
        predicted |= _find_few_alike(context, [added for added, _ in earlier.values()])
    elif _is_noise_together(context):
        predicted = {number: case.observed for number, case in context.list_cases()}
    if predicted:
        yield Hypothesis(
            code=NONLINEAR,
            predicted=predicted,
            detail="every replica adds noise to its gradient before the sum",
        )


def _are_multiples(seen: tuple[Array, Array], other: tuple[Array, Array]) -> bool:
    """Whether elements change by the same factor as in another value.

    Of noise hardly any do, each by a chance of one in a hundred.
    """
    (added, expected), (before, due) = seen, other
    if added.size != before.size:
        return False
    left, right = added * due, before * expected
    alike = np.abs(left - right) <= _SAME * np.maximum(np.abs(left), np.abs(right))
    return float(np.mean(alike)) > 0.5


def _find_few_alike(context: Context, noise: Sequence[Array]) -> dict[int, Array]:
    """Values with too few numbers to tell noise, no larger than noise elsewhere."""
    limit = _MOST_SPREADS * max(float(np.std(added)) for added in noise)
    return {
        number: case.observed
        for number, case in context.list_cases()
        if case.observed.size < _FEW
        and measure_size(case.observed - case.expected) <= limit
    }


def _is_noise_together(context: Context) -> bool:
    """Whether small values, taken together, are noise, at two standard errors."""
    seen: dict[tuple[int, str], tuple[Array, Array]] = {}
    for _, case in context.list_cases():
        added = case.observed - case.expected
        if added.size >= _FEW or not np.all(added):
            return False
        place = (case.key.step, case.key.variable)
        seen.setdefault(place, (added.ravel(), case.expected.ravel()))
    if sum(added.size for added, _ in seen.values()) < _ENOUGH_TOGETHER:
        return False
    added, expected = (
        np.concatenate(parts) for parts in zip(*seen.values(), strict=True)
    )
    return _is_noise(added, expected, (), errors=2)


def _is_noise(
    added: Array, expected: Array, earlier: Sequence[Array], errors: float
) -> bool:
    limit = errors / np.sqrt(added.size)
    if np.std(expected) == 0 or np.std(added) == 0 or np.std(np.abs(added)) == 0:
        return False
    pairs = [(added, expected), (np.abs(added), np.abs(expected))]
    pairs += [(added, other) for other in earlier if other.size == added.size]
    related = any(abs(float(np.corrcoef(a, b)[0, 1])) > limit for a, b in pairs)
    mean = abs(float(np.mean(added))) / float(np.std(added))
    return not related and mean <= limit
