"""Causes in the loss: how a replica scales its share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from distbench.compare.arrays.pair import Pair
from distbench.compare.arrays.ratio import SAME, are_alike, are_same_factors
from distbench.diagnose.clues.cases import take_rows
from distbench.diagnose.clues.context import Context, find_shards
from distbench.diagnose.clues.fit import add_weighted, fit_cases
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.diagnose.hypotheses.penalty import find_penalty
from distbench.trace import COMPUTED, WHOLE, TraceKey
from distbench.trace.numbers import Array, densify, measure_norm

Shards = tuple[int, ...]
Scale = tuple[str, str, Callable[[Shards], tuple[float, ...]]]
"""Code, words, and the factor of each replica's share of the loss, given the shards."""


def _list_scales(context: Context) -> Iterator[Scale]:
    """Wrong factors by which users scale a replica's loss; its share is right.

    Right is Σ ℓ_i / G. With n_r examples a local mean is G/n_r times that; n_r = G/N
    turns it into N.
    """
    n, g = context.replicas, count_examples(context.shards)
    yield (
        "loss-not-scaled",
        f"N = {n} times its share",
        lambda _: (float(n),) * n,
    )
    yield (
        "loss-not-scaled",
        "a mean over its own shard, not divided by the number of replicas",
        _take_means,
    )
    yield (
        "loss-not-scaled",
        f"G = {g} times its share",
        lambda shards: (float(count_examples(shards)),) * n,
    )
    yield (
        "loss-scaled-twice",
        f"1/N = 1/{n} of its share",
        lambda _: (1 / n,) * n,
    )
    yield (
        "loss-scaled-twice",
        f"1/G = 1/{g} of its share",
        lambda shards: (1 / count_examples(shards),) * n,
    )
    yield (
        "loss-scaled-twice",
        "divided by the number of its own examples once more",
        lambda shards: tuple(1 / max(1, size) for size in shards),
    )
    if context.is_uneven:
        yield (
            "mean-of-means",
            "the mean over its own shard divided by N, so that every shard weighs 1/N",
            lambda shards: tuple(mean / n for mean in _take_means(shards)),
        )
        yield (
            "loss-scaled-twice",
            "a mean over its own shard, divided by N twice",
            lambda shards: tuple(mean / n**2 for mean in _take_means(shards)),
        )


def count_examples(shards: Shards) -> int:
    """Size of the global batch, G."""
    return max(1, sum(shards))


def _take_means(shards: Shards) -> tuple[float, ...]:
    """How many times its share a replica's mean over its own shard is."""
    return tuple(count_examples(shards) / max(1, size) for size in shards)


def explain_by_scale(context: Context) -> Iterator[Hypothesis]:
    """A wrong factor on the loss, with the penalty's part right or wrong alike."""
    if not context.root:
        return
    n = context.replicas
    # What is right in earlier steps as well is likelier than what begins late.
    scales = sorted(_list_scales(context), key=lambda each: _is_late(context, each[2]))
    for code, words, scale in scales:
        used = [f for case in context.cases for f in scale(context.get_shards(case))]
        if all(factor == 1 for factor in used):
            continue
        for part in (1 / n, None) if context.evidence.penalty else (None,):
            predicted = {}
            for number, case in context.list_cases():
                factors = scale(context.get_shards(case))
                value = _scale_case(context, case, factors, part)
                if value is not None and not _is_refuted(context, case, factors):
                    predicted[number] = value
            yield Hypothesis(
                code=code,
                predicted=predicted,
                detail=f"each replica's loss is {words}",
            )


def are_own_means(context: Context, cases: Sequence[Pair]) -> bool:
    """Whether values are such as where each replica has the mean over its own shard."""
    return all(
        (value := _scale_case(context, case, _take_means(shards), None)) is not None
        and context.matches(case, value)
        for case in cases
        for shards in (context.get_shards(case),)
    )


def _is_late(context: Context, scale: Callable[[Shards], tuple[float, ...]]) -> bool:
    """Whether earlier steps are right, whose losses would have a factor as well."""
    first = min(case.key.step for case in context.cases)
    right = {key.step for key in context.right if key.phase in COMPUTED}
    return any(
        factor != 1
        for step in right.intersection(range(first))
        for factor in scale(context.evidence.reference.get_shards(step))
    )


def _is_refuted(context: Context, case: Pair, factors: Sequence[float]) -> bool:
    """Whether another replica's value is right, which would have a factor as well."""
    for replica, factor in enumerate(factors):
        key = case.key.at(replica)
        if case.key.replica == WHOLE or factor == 1 or key not in context.right:
            continue
        seen = context.evidence.observed.get(key)
        due = context.evidence.reference.get(key)
        if seen is None or due is None:
            continue
        expected = densify(due)
        wrong = measure_norm(densify(seen) - factor * expected)
        # Within the scatter of random numbers either may be nearer.
        scatter = case.margin.widest
        if wrong > max(scatter, measure_norm(densify(seen) - expected)):
            return True
    return False


def explain_by_own_factor(context: Context) -> Iterator[Hypothesis]:
    """A replica's loss has some factor at a step, and so have all of its gradients.

    A clip may leave such a factor on gradients too, but none on the loss.
    """
    if context.phase != "local_gradient" or not context.root:
        return
    if any(case.key.replica == WHOLE for _, case in context.list_cases()):
        return
    groups = context.group_cases(
        lambda case: replace(case.key, phase="loss", variable="")
    )
    predicted: dict[int, Array] = {}
    ratios: list[float] = []
    for key, cases in groups.items():
        fit = fit_cases(case for _, case in cases)
        factor = _find_loss_factor(context, key)
        if fit is None or factor is None or abs(factor - 1) <= SAME:
            return
        if not are_same_factors(fit.ratio, factor):
            return
        ratios.append(fit.ratio)
        predicted |= {number: fit.ratio * case.expected for number, case in cases}
    if predicted:
        alike = are_alike(ratios)
        words = ", ".join(f"{ratio:.8g}" for ratio in ratios[: 1 if alike else None])
        yield Hypothesis(
            code="scale-error",
            predicted=predicted,
            detail=f"it is {words} times what it should be",
            ratio=ratios[0] if alike else None,
            phase="loss",
        )


def _find_loss_factor(context: Context, key: TraceKey) -> float | None:
    """What a replica's loss is, over what it should be."""
    seen = context.evidence.observed.get(key)
    due = context.evidence.reference.get(key)
    if seen is None or due is None:
        return None
    loss, expected = densify(seen), densify(due)
    if loss.size != 1 or not np.any(expected):
        return None
    return float(loss.item() / expected.item())


def explain_by_equal_gradients(context: Context) -> Iterator[Hypothesis]:
    """Every replica hands over the sum already: it will be added up once more."""
    if context.phase != "local_gradient" or context.replicas == 1:
        return
    predicted: dict[int, Array] = {}
    for number, case in context.list_cases():
        key = replace(case.key, replica=WHOLE)
        whole = context.evidence.reference.get(key)
        if whole is None:
            continue
        if case.key.replica != WHOLE:
            predicted[number] = take_rows(whole, case)
        elif case.terms and all(np.array_equal(t, case.terms[0]) for t in case.terms):
            predicted[number] = context.replicas * case.expected
    yield Hypothesis(
        code="double-reduction",
        predicted=predicted,
        detail="every replica holds the reduced gradient before it is reduced",
        ratio=float(context.replicas),
    )


def _scale_seen(case: Pair, factors: tuple[float, ...]) -> Array | None:
    """A sum of scaled values, if what was seen makes up the whole without the factors.

    Needs no value of a shard alone, which says nothing where replicas normalise by
    what all of them measure: Σ seen_r / f_r is due, and Σ seen_r arrives.
    """
    if not case.terms or not all(factors):
        return None
    over = [1 - 1 / factor for factor in factors]
    return np.asarray(case.expected + add_weighted(over, case.terms))


def _scale_case(
    context: Context, case: Pair, factors: tuple[float, ...], part: float | None
) -> Array | None:
    """A case with another factor on the data's part of the loss.

    Args:
        context: The wrong values.
        case: One of them.
        factors: Factor of each replica.
        part: Factor of the penalty; None scales it as the data.
    """
    if case.key.replica != WHOLE and case.key.phase != "reduced_gradient":
        factor = factors[case.key.replica]
        if part is None:
            return factor * case.expected
        penalty = find_penalty(context, case)
        if penalty is None:
            return None
        return factor * (case.expected - part * penalty) + part * penalty
    if len(set(factors)) == 1:
        return factors[0] * case.expected
    if part is not None:
        return None
    terms = find_shards(context, case)
    if not terms:
        return _scale_seen(case, factors)
    if context.evidence.measure.shards_known:
        return add_weighted(factors, terms)
    # A program that takes means takes a shard alone for the whole batch, so that its
    # mean is what the reference has; one that divides by a constant has its share.
    sizes = context.get_shards(case)
    parts = [size / count_examples(sizes) for size in sizes]
    shares, means = (
        add_weighted([1.0] * len(terms), terms),
        add_weighted(parts, terms),
    )
    errors = [measure_norm(made - case.expected) for made in (shares, means)]
    if min(errors) > SAME * max(map(measure_norm, (shares, means, case.expected))):
        # On one device the shards make up the batch in another way, or not at all.
        return _scale_seen(case, factors)
    if errors[0] < errors[1]:
        return add_weighted(factors, terms)
    return add_weighted(
        [f * part for f, part in zip(factors, parts, strict=True)], terms
    )
