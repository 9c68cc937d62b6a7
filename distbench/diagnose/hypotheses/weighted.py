"""A mean that each replica weighs by itself: over tokens, masks or sample weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from distbench.compare.arrays.pair import Pair
from distbench.compare.arrays.ratio import (
    SAME,
    are_alike,
    are_means_by_size,
    are_near,
)
from distbench.compare.nature.grouping import Nature
from distbench.diagnose.clues.context import Context, find_shards
from distbench.diagnose.clues.fit import (
    Row,
    add_weighted,
    fit_weights,
    leaves_nothing,
    name_weights,
    pick_features,
    predict_rows,
)
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.diagnose.hypotheses.own_means import find_parts, name_mean
from distbench.diagnose.hypotheses.penalty import set_apart
from distbench.trace import WHOLE
from distbench.trace.numbers import Array, densify

Means = tuple[str, str, Callable[[Sequence[int]], tuple[float, ...]]]
"""Code, words, and what the mean over each replica's own weights counts, given the
sizes of the shards."""


def explain_by_own_weights(context: Context) -> Iterator[Hypothesis]:
    """Each replica divides by the sum of its own weights, then by a power of N.

    Right is Σ w_i ℓ_i / Σ w_i over all examples: the mean of shard r, which one device
    computes of that shard alone, counts c_r = W_r / ΣW, where W_r is its sum of
    weights. Shards with as many examples as each other may differ in that. What c_r is
    nobody declares: it is fitted over all gradients of the step, which must leave
    nothing and give shares of a whole. What is predicted needs no fit: Σ_r mean_r / N.
    A sum of weights that is kept above a number, as max(W_r, 1) is, has shares that are
    no parts of a whole: then one device's loss has to be made of them as well. What a
    shard gives may also be its mean times its part of the examples.

    Of a loss with two terms, each of which has weights of its own, only the gradients
    that one of them reaches alone show such shares. The others are taken apart by what
    each replica was seen to have of them.
    """
    if not _may_weigh(context):
        return
    means = {n: find_shards(context, case) for n, case in context.list_cases()}
    if any(context.cases[number].key.replica != WHOLE for number in means):
        return
    steps = {context.cases[number].key.step for number in means}
    shares = {
        step: context.work_out(
            ("shares of means", step), partial(_list_shares, context, step)
        )
        for step in sorted(steps)
    }
    by_size = _are_by_size(context, shares)
    if by_size:
        parts = {step: find_parts(context, step) for step in shares}
        shares = {step: (one * parts[step],) for step, (one,) in shares.items()}
        for number, terms in means.items():
            divisors = parts[context.cases[number].key.step]
            divisors = np.where(divisors > 0, divisors, 1.0)  # without examples
            means[number] = tuple(t / p for t, p in zip(terms, divisors, strict=False))
    for own in range(min(map(len, shares.values()), default=0)):
        part = "has a term that is" if len(shares[min(steps)]) > 1 else "is"
        mean, due = name_mean(context, {step: shares[step][own] for step in shares})
        for code, words, count in _list_means(context):
            predicted = {}
            for number, terms in means.items():
                case = context.cases[number]
                counts = count(context.get_shards(case))
                made = _predict_means(case, terms, shares[case.key.step], own, counts)
                if made is not None:
                    predicted[number] = made
            cause = Hypothesis(
                code=code,
                predicted=predicted,
                detail=f"each replica's loss {part} {mean}{words}; {due}",
            )
            # What a shard has by its size is no longer the penalty in full.
            together = None if by_size else float(sum(count(context.shards)))
            yield from set_apart(context, cause, together)


def _may_weigh(context: Context) -> bool:
    """Whether there are shards here of which the program decides how they count."""
    is_open = context.root and not context.evidence.measure.shards_known
    return is_open and context.replicas > 1


def _are_by_size(context: Context, shares: Mapping[int, Sequence[Array]]) -> bool:
    """Whether what a shard alone gives is its mean times its part of the examples."""
    sizes = context.evidence.reference.get_shards
    return bool(shares) and all(
        len(found) == 1
        and abs(np.sum(found[0]) - 1) > SAME
        and are_means_by_size(found[0], sizes(step))
        for step, found in shares.items()
    )


def _predict_means(
    case: Pair,
    terms: Sequence[Array],
    shares: Sequence[Array],
    own: int,
    counts: Sequence[float],
) -> Array | None:
    """What means that count so give, in place of their shares of the global batch.

    Beside a mean m_r another one, t_r, may count its share b_r of the whole, as it
    should: a shard alone gives s_r = m_r + t_r, and a replica counts_r m_r + b_r t_r.
    Both are known, so m_r is as well, if one device has Σ_r (a_r m_r + b_r t_r).

    Args:
        case: A wrong sum over the replicas.
        terms: What one device gives for each shard alone; empty if it is not known.
        shares: What the means of each shard should count, of one term or another.
        own: Which of them is a_r.
        counts: What the mean of each shard counts instead.
    """
    if not terms:
        return None
    if _is_made_of(case.expected, shares[own], terms):
        return add_weighted(counts, terms)
    for rest in (other for number, other in enumerate(shares) if number != own):
        weights = np.asarray(counts) - rest
        if not case.terms or np.any(np.abs(weights) <= SAME):
            continue
        found = [
            (seen - b * term) / weight
            for seen, b, term, weight in zip(
                case.terms, rest, terms, weights, strict=True
            )
        ]
        made = add_weighted(shares[own] - rest, found) + add_weighted(rest, terms)
        if are_near(made, case.expected, case.expected, *found):
            return np.asarray(np.sum(case.terms, axis=0))
    return None


def _is_made_of(due: Array, weights: Array, terms: Sequence[Array]) -> bool:
    return are_near(add_weighted(weights, terms), due, due, *terms)


def explain_by_own_shares(context: Context) -> Iterator[Hypothesis]:
    """The shards of a step count otherwise than they should: w_r, fitted to it.

    What they should count is fitted as well, so the shards must make up the batch. If
    each brings what it gives alone, and all are as long as the whole, they were brought
    to one length, as by a clip. So was something on the way to them, of which they are
    made, if the squares of what they should count add up to 1: of parts p_r, brought to
    the length L each, the whole has L p_r / |p|, and so |p_r| / |p| of each.
    """
    if not _may_weigh(context):
        return
    predicted: dict[int, Array] = {}
    words = ""
    wrong: set[int] = set()
    limits: list[float | None] = []
    squares: list[float | None] = []
    for cases in context.list_steps().values():
        terms = {number: find_shards(context, case) for number, case in cases}
        if not all(terms.values()):
            return
        seen = [
            Row(number=number, target=case.observed, features=terms[number])
            for number, case in cases
        ]
        due = [replace(row, target=context.cases[row.number].expected) for row in seen]
        weights, wanted = fit_weights(seen), fit_weights(due)
        if weights is None or wanted is None or not leaves_nothing(due, wanted):
            return
        predicted |= predict_rows(seen, weights)
        off = np.abs(weights - wanted)
        wrong |= set(np.flatnonzero(off > SAME * np.max(np.abs(wanted))).tolist())
        words = words or f"{name_weights(weights)} in place of {name_weights(wanted)}"
        is_alone = np.allclose(weights, 1.0, rtol=0.0, atol=SAME)
        limits.append(_find_length(due) if is_alone else None)
        has_all = is_alone and np.min(wanted) > SAME
        squares.append(float(wanted @ wanted) if has_all else None)
    if not predicted:
        return
    found = [limit for limit in limits if limit is not None]
    if len(found) == len(limits) and are_alike(found):
        is_one = len({case.key.variable for case in context.cases}) == 1
        of = "its gradient" if is_one else "its gradients, all together,"
        yield Hypothesis(
            code="clip-before-reduction",
            predicted=predicted,
            detail=f"every replica brings the norm of {of} to {found[0]:.6g} before "
            "the replicas' are added up, as a clip does, and one device that of the "
            "global batch",
        )
    if all(total is not None and abs(total - 1) <= SAME for total in squares):
        yield Hypothesis(
            code="clip-before-reduction",
            predicted=predicted,
            detail="every replica brings something of its own on the way to these "
            "gradients to one length, as a clip of what flows back through a layer "
            "does, and one device that of the global batch: what the shards give alone "
            f"counts {words}, and the squares of these add up to 1",
        )
    yield Hypothesis(
        code="scale-error",
        predicted=predicted,
        detail=f"what the shards give alone counts {words}",
        replicas=tuple(sorted(wrong)) or None,
    )


def _find_length(rows: Sequence[Row]) -> float | None:
    """The norm that the gradients of each shard have, and those of the whole."""
    parts = zip(*(row.features for row in rows), strict=True)
    wholes = [row.target for row in rows]
    lengths = [
        float(np.sqrt(sum(np.sum(np.square(value)) for value in values)))
        for values in (wholes, *parts)
    ]
    return lengths[0] if are_alike(lengths) else None


def _list_means(context: Context) -> Iterator[Means]:
    n = context.replicas
    even = " divided by N, so that every shard weighs 1/N"
    yield "mean-of-means", even, lambda _: (1 / n,) * n
    if context.is_uneven:
        by_size = " that counts as its number of examples does"
        yield "mean-of-means", by_size, Nature(kind="mean").weigh
    yield "loss-not-scaled", f", not divided by N = {n}", lambda _: (1.0,) * n
    yield "loss-scaled-twice", ", divided by N twice", lambda _: (1 / n**2,) * n


def _list_shares(context: Context, step: int) -> tuple[Array, ...]:
    """What each shard's mean is of the whole batch's; empty if that is no mean of them.

    Of all gradients where they agree, else of each that is made of a single mean.
    """
    reference = context.evidence.reference
    rows: list[Row] = []
    for key, value in reference.select(step=step, phase="local_gradient"):
        alone = reference.get_replicas(key) if key.replica == WHOLE else ()
        if alone:
            terms = tuple(map(densify, alone))
            rows.append(Row(number=len(rows), target=densify(value), features=terms))
    losses = [
        Row(number=0, target=densify(value), features=tuple(map(densify, alone)))
        for key, value in reference.select(step=step, phase="loss", variable="")
        if key.replica == WHOLE and (alone := reference.get_replicas(key))
    ]
    shared = _fit_shares(rows, context.replicas, losses)
    if shared is not None:
        return (shared,)
    apart: list[Array] = []
    for row in rows:
        shares = _fit_shares([row], context.replicas)
        if shares is not None and not any(
            np.allclose(shares, other, rtol=0.0, atol=SAME) for other in apart
        ):
            apart.append(shares)
    return tuple(apart)


def _fit_shares(
    rows: Sequence[Row], replicas: int, losses: Sequence[Row] = ()
) -> Array | None:
    """Shares of the shards that make up all of these; None if there are none such.

    A shard without any weight has a gradient of 0, and whatever share.

    Args:
        rows: The gradients of a step, of the batch and of each shard.
        replicas: How many shards there are.
        losses: The same of its loss: what it is made of need not add up to 1.
    """
    held = [r for r in range(replicas) if any(np.any(row.features[r]) for row in rows)]
    rows = [pick_features(row, held) for row in rows]
    weights = fit_weights(rows) if len(held) > 1 else None
    # Rounding aside: what has a gradient has a weight.
    if weights is None or np.min(weights) <= SAME * np.max(weights):
        return None
    if abs(np.sum(weights) - 1) > SAME:
        # Gradients that are divided by their own norms have such weights, and no loss.
        losses = [pick_features(row, held) for row in losses]
        if not losses or _are_shares_of_sum(weights):
            return None
        rows = [*rows, *losses]
    if not all(_is_made_of(row.target, weights, row.features) for row in rows):
        return None
    shares = np.zeros(replicas)
    shares[held] = weights
    return shares


def _are_shares_of_sum(weights: Array) -> bool:
    """Whether shards that are no means are just added up."""
    return bool(np.all(np.abs(weights - 1) <= SAME))
