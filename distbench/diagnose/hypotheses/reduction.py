"""Causes in the reduction: which replicas' gradients were added up, and how often."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from distbench.compare.arrays.pair import Pair
from distbench.compare.arrays.ratio import (
    SAME,
    are_alike,
    are_same_factors,
    fit_common_ratio,
    fit_ratio,
)
from distbench.diagnose.clues.cases import take_rows
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.fit import add_weighted, name_weights
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.diagnose.hypotheses.replica_weights import (
    fit_replica_weights,
    fit_told_weights,
)
from distbench.diagnose.names import name_replicas
from distbench.trace import SUMMED
from distbench.trace.numbers import Array, are_equal, densify, take_numbers

_WEIGHTED = (
    "Add up gradients that are weighted by their shares of the global batch: the "
    "weights make the mean."
)

CHANGED_ONCE = (
    "Sum by all_reduce, change that sum as one device does (clip it), and have nothing "
    "add it up again: switch the optimizer's own sum off, or, where that cannot be, as "
    "in Keras 3, divide by the replicas what it is handed. Without the all_reduce each "
    "replica would change its own gradient. If there is one sum alone, drop the factor "
    "N behind it."
)
"""What to do about a sum that something is made of, if that is added up again."""


def _predict_terms(
    context: Context, combine: Callable[[Pair, tuple[Array, ...]], Array | None]
) -> dict[int, Array]:
    """Predict every case from its replicas' own gradients."""
    predicted: dict[int, Array] = {}
    for number, case in context.list_cases():
        terms = context.find_terms(case)
        if terms:
            value = combine(case, terms)
            if value is not None:
                predicted[number] = value
    return predicted


def explain_by_missing_sum(context: Context) -> Iterator[Hypothesis]:
    """Each replica goes on with its own gradient, as it is or times N or 1/N."""
    n = context.replicas
    if context.phase not in SUMMED or n == 1:
        return
    code = name_missing_sum(context)
    some = code == "variable-not-reduced"
    rest = ", while other variables are reduced" if some else ""
    for factor in (1.0, float(n), 1 / n):
        words = _name_multiple(factor / context.times_share)
        yield Hypothesis(
            code=code,
            predicted=_predict_terms(
                context,
                lambda case, terms, f=factor: f * terms[case.key.replica],  # type: ignore[misc]
            ),
            detail=f"each replica goes on with {words}its own gradient{rest}",
        )
    yield Hypothesis(
        code=code,
        predicted=_predict_rest(context),
        detail=f"each replica goes on with a part of the sum of its own{rest}: "
        "together they are what each should have",
    )


def _name_multiple(factor: float) -> str:
    if are_same_factors(factor, 1):
        return ""
    return f"{factor:.4g} times " if factor > 1 else f"1/{1 / factor:.4g} of "


def _predict_rest(context: Context) -> dict[int, Array]:
    """What the other replicas leave of a sum, where they go on with other values.

    Needs no addends, which nobody knows where a replica's own gradient was not seen.
    """
    predicted: dict[int, Array] = {}
    for number, case in context.list_cases():
        seen = context.evidence.observed.get_replicas(case.key)
        values = [take_rows(value, case) for value in seen]
        if all(_is_multiple(case, value) for value in values):
            continue  # the right sum, times a number of each one's own
        if any(np.any(value != values[0]) for value in values[1:]):
            others = [v for r, v in enumerate(values) if r != case.key.replica]
            predicted[number] = case.expected - np.sum(others, axis=0)
    return predicted


def _is_multiple(case: Pair, value: Array) -> bool:
    fit = fit_ratio(value, case.expected)
    return value.size > 1 and fit is not None and fit.residual_share <= SAME


def name_missing_sum(context: Context) -> str:
    """The code of gradients that nobody sums: of all variables, or of some."""
    wrong = {case.key.variable for case in context.cases}
    right = {key.variable for key in context.right} - wrong
    some = any(_shows_sum(context, variable) for variable in right) or any(
        _is_combined(context, variable)
        for variable in context.infos
        if variable not in wrong | right
    )
    return "variable-not-reduced" if some else "missing-reduction"


def _is_combined(context: Context, variable: str) -> bool:
    """Whether replicas hold alike what they make of gradients that are not alike.

    Then a collective made it, and it is wrong for another reason. What has one size in
    all elements and steps is no such: signs may agree, and each replica may leave 0.
    """
    observed = context.evidence.observed
    sizes: list[Array] = []
    is_alike = False
    for key, _ in observed.select(phase=context.phase, variable=variable, replica=0):
        held, own = (
            [densify(value) for value in observed.get_replicas(found)]
            for found in (key, replace(key, phase="local_gradient"))
        )
        if held and own:
            sizes.append(np.abs(held[0]).ravel())
            is_alike |= _are_equal(held) and not _are_equal(own)
    known = np.concatenate([np.empty(0), *sizes])
    return is_alike and bool(known.size) and bool(np.ptp(known) > 0)


def _are_equal(values: Sequence[Array]) -> bool:
    return all(are_equal(values[0], other) for other in values[1:])


def _shows_sum(context: Context, variable: str) -> bool:
    """Whether a sum of this variable's gradients differs from each addend."""
    for replica in range(context.replicas):
        seen = context.evidence.observed.select(
            phase="local_gradient", variable=variable, replica=replica
        )
        if not any(np.any(take_numbers(v)) for _, v in seen):
            return False
    return True


def explain_by_count(context: Context) -> Iterator[Hypothesis]:
    """The sum too often or divided: N, N², 1/N, 1/N²."""
    n = context.replicas
    if context.phase not in SUMMED or n == 1 or context.is_right_elsewhere:
        return
    sparse = {
        c.key.variable for c in context.cases if context.is_sparse(c.key.variable)
    }
    only_sparse = all(case.key.variable in sparse for case in context.cases)
    dense_is_right = any(key.variable not in sparse for key in context.right)
    averaged, weighted = "mean-instead-of-sum", context.evidence.measure.weighted
    again = CHANGED_ONCE if any(map(context.is_changed, context.cases)) else ""
    if only_sparse and dense_is_right:
        averaged = "sparse-averaged"
    for code, factor, words in (
        ("double-reduction", n, f"the sum is {n} times too large: N = {n}"),
        (averaged, 1 / n, f"the sum is divided by the number of replicas, N = {n}"),
        ("double-reduction", n**2, f"the sum is N² = {n**2} times too large"),
        (averaged, 1 / n**2, f"the sum is divided by N² = {n**2}"),
    ):
        if weighted:
            words += (
                f"; weighed {name_weights(weighted)}, the replicas' gradients are "
                "shares of one device's, and only have to be added up"
            )
        yield Hypothesis(
            code=code,
            predicted={i: factor * case.expected for i, case in context.list_cases()},
            detail=words,
            ratio=float(factor),
            of_due=True,
            advice=again if code == "double-reduction" else _WEIGHTED * bool(weighted),
        )


def explain_by_subset(context: Context) -> Iterator[Hypothesis]:
    """A sum over some of the replicas, or the mean of some of them times N."""
    n = context.replicas
    if context.phase not in SUMMED or n == 1:
        return
    for kept, lost in list_subsets(context):
        for factor in (1.0, n / len(kept)):
            # What is no mean counts as often as a share does, or as it is.
            is_left = factor in (1.0, context.times_share)
            words = "" if is_left else ", scaled to make up for it"
            yield Hypothesis(
                code="replica-dropped",
                predicted=_predict_terms(
                    context,
                    lambda _, terms, k=kept, f=factor: (  # type: ignore[misc]
                        f * np.sum([terms[r] for r in k], axis=0)
                    ),
                ),
                detail=f"the sum lacks the gradient of {name_replicas(lost)}{words}",
                replicas=lost,
            )


def list_subsets(
    context: Context,
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The replicas that a sum may be of, and those that it then lacks."""
    for kept in _list_kept(context):
        yield kept, tuple(r for r in range(context.replicas) if r not in kept)


def _list_kept(context: Context) -> Iterator[tuple[int, ...]]:
    """Every strict subset for few replicas; else what a fit and single losses say."""
    n = context.replicas
    everyone = range(n)
    if n <= 4:
        for size in range(n - 1, 0, -1):
            yield from itertools.combinations(everyone, size)
        return
    for lost in everyone:
        yield tuple(r for r in everyone if r != lost)
    weights = fit_replica_weights(context)
    if weights is not None:
        kept = tuple(r for r in everyone if weights[r] > 0.5 * np.max(weights))
        if 0 < len(kept) < n - 1:
            yield kept
    for first in everyone:
        yield (first,)


def explain_by_weights(context: Context) -> Iterator[Hypothesis]:
    """Another weight for each replica: 1/n_r, or whatever was fitted."""
    n = context.replicas
    if context.phase not in SUMMED or n == 1:
        return
    if context.is_uneven:
        yield Hypothesis(
            code="mean-of-means",
            predicted=_predict_weighted(
                context, lambda case: _weigh_alike(context.get_shards(case))
            ),
            detail="every shard weighs 1/N, whatever its size",
        )
    fitted = fit_told_weights(context)
    if fitted is not None:
        words = _tell_weights(fitted, context.evidence.measure.weighted)
        off = np.abs(fitted - 1)
        is_lost = np.abs(fitted) <= SAME * np.max(np.abs(fitted))
        kept = fitted[~is_lost]
        if np.any(is_lost) and np.any(kept) and are_alike(kept):
            lost = tuple(int(r) for r in np.flatnonzero(is_lost))
            yield Hypothesis(
                code="replica-dropped",
                predicted=_predict_weighted(context, lambda _: list(fitted)),
                detail=f"the sum lacks the gradient of {name_replicas(lost)}, and "
                f"is {np.mean(kept):.7g} times that of the others",
                replicas=lost,
                fitted=n,
            )
        yield Hypothesis(
            code="scale-error",
            predicted=_predict_weighted(context, lambda _: list(fitted)),
            detail=f"the replicas' gradients weigh {words}",
            replicas=tuple(int(r) for r in np.flatnonzero(2 * off > off.max())),
            fitted=n,
        )


def _tell_weights(fitted: Array, due: Sequence[float]) -> str:
    """What gradients weigh, and what is due to those that are no shares by themselves.

    Args:
        fitted: What each counts of the share that it should be.
        due: What makes it that share; empty where it is one.
    """
    if not due:
        return ", ".join(f"{w:.7g}" for w in fitted) + " in place of 1 each"
    return f"{name_weights(fitted * due)} in place of {name_weights(due)}"


def explain_by_scaled_own(context: Context) -> Iterator[Hypothesis]:
    """Each replica goes on with its own gradient, times a number that is fitted."""
    if context.phase not in SUMMED or context.replicas == 1:
        return
    own = _predict_terms(context, lambda case, terms: terms[case.key.replica])
    fit = fit_common_ratio(
        (context.cases[number].observed, term) for number, term in own.items()
    )
    if fit is not None:
        yield Hypothesis(
            code=name_missing_sum(context),
            predicted={number: fit.ratio * term for number, term in own.items()},
            detail=f"each replica goes on with {fit.ratio / context.times_share:.7g} "
            "times its own gradient",
            fitted=1,
        )


def _weigh_alike(shards: Sequence[int]) -> list[float]:
    """Factors that let every shard weigh 1/N, from its share n_r/G."""
    return [sum(shards) / (len(shards) * max(1, size)) for size in shards]


def _predict_weighted(
    context: Context, weigh: Callable[[Pair], Sequence[float]]
) -> dict[int, Array]:
    return _predict_terms(
        context,
        lambda case, terms: add_weighted(weigh(case), terms),
    )
