"""A loss with terms of two kinds, of which the one kind is scaled wrongly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from distbench.compare.parts import Parts, join_parts, split_parts
from distbench.compare.values import Array
from distbench.diagnose.context import Context, Hypothesis, find_tolerance, take_rows
from distbench.trace import WHOLE

Ways = tuple[str, str, float, float]
"""Code, words, and what the sums and the means of each replica count."""


def explain_by_parts(context: Context) -> Iterator[Hypothesis]:
    """What is a sum over the examples is a share, and what is a mean is not; or not.

    Right is Σ_r (s_r + n_r/G m_r), with s_r what adds up over the examples of shard r
    and m_r what is a mean over them.
    """
    if not context.root or context.replicas == 1 or context.evidence.shards_known:
        return
    found: dict[int, tuple[Parts, ...]] = {}
    for number, case in context.list_cases():
        parts = split_parts(context.evidence, case.key)
        if case.key.replica != WHOLE or not parts:
            return
        joined = join_parts(context.get_shards(case), parts)
        rest = take_rows(joined, case) - case.expected
        if np.any(np.abs(rest) > find_tolerance(case, context.replicas)):
            return  # on one device it is something else than these two
        found[number] = tuple(
            Parts(total=take_rows(p.total, case), mean=take_rows(p.mean, case))
            for p in parts
        )
    for code, words, of_sums, of_means in _list_ways(context):
        yield Hypothesis(
            code=code,
            predicted={
                number: _weigh(parts, of_sums, of_means)
                for number, parts in found.items()
            },
            detail=f"each replica's loss has terms of two kinds: {words}",
        )


def _list_ways(context: Context) -> Iterator[Ways]:
    n = context.replicas
    share = "one is its share of the global batch's"
    mean = "the other a mean over its own shard"
    yield (
        "loss-not-scaled",
        f"{share}, {mean} that nothing divides by N = {n}",
        1.0,
        1.0,
    )
    if context.is_uneven:
        every = "so that every shard weighs 1/N"
        yield "mean-of-means", f"{share}, {mean} divided by N, {every}", 1.0, 1 / n
    twice = f"one is a mean over its own shard, the other its share; both count 1/{n}"
    yield "loss-scaled-twice", twice, 1 / n, 1 / n
    times = f"one is a mean over its own shard, the other N = {n} times its share"
    yield "loss-not-scaled", times, float(n), 1.0


def _weigh(parts: Sequence[Parts], of_sums: float, of_means: float) -> Array:
    terms = [of_sums * part.total + of_means * part.mean for part in parts]
    return np.asarray(np.sum(terms, axis=0))
