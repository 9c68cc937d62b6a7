"""A mean that each replica weighs by itself: over tokens, masks or sample weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from distbench.compare.nature import Nature
from distbench.compare.values import Array, densify, measure_size
from distbench.diagnose.context import Context, Hypothesis, find_shards
from distbench.diagnose.fit import (
    Row,
    fit_weights,
    leaves_nothing,
    pick_features,
    predict_rows,
)
from distbench.trace import WHOLE

_NEAR = 1e-3
"""Only asks whether shards are weighed at all; the prediction has no free number."""

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
    """
    if not context.root or context.replicas == 1 or context.evidence.shards_known:
        return
    shares: dict[int, Array | None] = {}
    means: dict[int, tuple[Array, ...]] = {}
    for number, case in context.list_cases():
        step = case.key.step
        if step not in shares:
            shares[step] = _fit_shares(context, step)
        if shares[step] is None or case.key.replica != WHOLE:
            return
        terms = find_shards(context, case)
        if terms:
            means[number] = terms
    first = next((found for found in shares.values() if found is not None), None)
    if first is None:
        return
    due = ", ".join(f"{share:.4g}" for share in first)
    for code, words, count in _list_means(context):
        predicted = {}
        for number, terms in means.items():
            counts = count(context.get_shards(context.cases[number]))
            parts = [c * term for c, term in zip(counts, terms, strict=True)]
            predicted[number] = np.sum(parts, axis=0)
        yield Hypothesis(
            code=code,
            predicted=predicted,
            detail=f"each replica's loss is a mean over its own weights (tokens, "
            f"unmasked elements, sample weights){words}; of the weights of all "
            f"examples the shards hold {due}",
        )


def explain_by_own_shares(context: Context) -> Iterator[Hypothesis]:
    """The shards of a step count otherwise than they should: w_r, fitted to it.

    What they should count is fitted as well, so the shards must make up the batch.
    """
    if not context.root or context.replicas == 1 or context.evidence.shards_known:
        return
    predicted: dict[int, Array] = {}
    words = ""
    wrong: set[int] = set()
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
        wrong |= set(np.flatnonzero(off > _NEAR * np.max(np.abs(wanted))).tolist())
        words = words or f"{_list(weights)} in place of {_list(wanted)}"
    yield Hypothesis(
        code="scale-error",
        predicted=predicted,
        detail=f"what the shards give alone counts {words}",
        replicas=tuple(sorted(wrong)) or None,
    )


def _list(weights: Array) -> str:
    return ", ".join(f"{weight:.4g}" for weight in weights)


def _list_means(context: Context) -> Iterator[Means]:
    n = context.replicas
    even = " divided by N, so that every shard weighs 1/N"
    yield "mean-of-means", even, lambda _: (1 / n,) * n
    if context.is_uneven:
        by_size = " that counts as its number of examples does"
        yield "mean-of-means", by_size, Nature(kind="mean").weigh
    yield "loss-not-scaled", f", not divided by N = {n}", lambda _: (1.0,) * n
    yield "loss-scaled-twice", ", divided by N twice", lambda _: (1 / n**2,) * n


def _fit_shares(context: Context, step: int) -> Array | None:
    """Share of each shard in the whole batch's mean; None if that is no mean of them.

    A shard without any weight has a gradient of 0, and whatever share.
    """
    reference = context.evidence.reference
    rows: list[Row] = []
    for key, value in reference.select(step=step, phase="local_gradient"):
        if key.replica != WHOLE:
            continue
        alone = [reference.get(key.at(r)) for r in range(context.replicas)]
        found = [densify(term) for term in alone if term is not None]
        if len(found) == context.replicas:
            rows.append(
                Row(number=len(rows), target=densify(value), features=tuple(found))
            )
    held = [
        r
        for r in range(context.replicas)
        if any(np.any(row.features[r]) for row in rows)
    ]
    rows = [pick_features(row, held) for row in rows]
    weights = fit_weights(rows) if len(held) > 1 else None
    if weights is None or np.min(weights) <= 0 or abs(np.sum(weights) - 1) > _NEAR:
        return None
    for number, value in predict_rows(rows, weights).items():
        row = rows[number]
        size = max(map(measure_size, (row.target, *row.features)))
        if measure_size(value - row.target) > _NEAR * size:
            return None
    shares = np.zeros(context.replicas)
    shares[held] = weights
    return shares
