"""A loss with terms of two kinds, of which the one kind is scaled wrongly."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from distbench.compare.arrays.pair import Pair
from distbench.compare.arrays.ratio import share_by_size
from distbench.compare.nature.parts import split_parts
from distbench.diagnose.clues.cases import take_rows
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.trace import WHOLE
from distbench.trace.numbers import Array

Part = tuple[float, Array, Array]
"""A shard's share of G, and what of its value is a sum, and a mean over the shard."""
Way = tuple[str, str, float, Callable[[float], float]]
"""Code, words, what the sum of a replica counts, and its mean by its share of G."""


def explain_by_parts(context: Context) -> Iterator[Hypothesis]:
    """One kind of terms is scaled right, and the other one is not.

    A loss may have terms that are sums over examples, s_r on the shard of replica r,
    and terms that are means over them, m_r. Right is s_r + n_r/G m_r on each replica,
    or the sum of these over all.
    """
    if not context.root or context.replicas == 1:
        return
    found: dict[int, tuple[Part, ...]] = {}
    rests: dict[int, Array] = {}
    for number, case in context.list_cases():
        found[number] = parts = _list_parts(context, case)
        if not parts:
            return
        rests[number] = case.expected - _weigh(parts, 1.0, lambda share: share)
    adds_up = all(
        context.are_near(context.cases[number], rest, np.zeros_like(rest))
        for number, rest in rests.items()
    )
    ways = list(_list_ways(context))
    if found and all(
        _are_alike(parts, context, context.cases[number])
        for number, parts in found.items()
    ):
        full = "each replica has in full what does not depend on the examples"
        words = f"{full}, which is in the sum N = {context.replicas} times"
        ways.insert(0, ("regularizer-not-scaled", words, 1.0, lambda _: 1.0))
    for code, words, of_sums, of_means in ways:
        # What the shards make together of other examples than their own is no mean.
        predicted = {
            number: _weigh(parts, of_sums, of_means) + of_sums * rests[number]
            for number, parts in found.items()
        }
        if adds_up or context.match_all(predicted):
            yield Hypothesis(code=code, predicted=predicted, detail=words)


def _list_parts(context: Context, case: Pair) -> tuple[Part, ...]:
    """The parts of all shards, or of a replica's own; empty if they are not known."""
    found = split_parts(context.evidence, case.key)
    shares = share_by_size(context.get_shards(case))
    parts: list[Part] = []
    for part, share in zip(found, shares, strict=True) if found else ():
        total, mean = take_rows(part.total, case), take_rows(part.mean, case)
        if context.evidence.measure.shards_known:
            # What the replicas have to compute: their means are shares by now.
            mean = mean / share if share else mean
        parts.append((share, total, mean))
    replica = case.key.replica
    return tuple(
        parts if replica == WHOLE or not parts else parts[replica : replica + 1]
    )


def _are_alike(parts: Sequence[Part], context: Context, case: Pair) -> bool:
    """Whether what is a mean over each shard is the same whatever shard it is."""
    held = [mean for share, _, mean in parts if share]
    return len(held) > 1 and all(context.are_near(case, mean, held[0]) for mean in held)


def _list_ways(context: Context) -> Iterator[Way]:
    n = context.replicas
    kinds = "each replica's loss has terms of two kinds"
    share = f"{kinds}: one is its share of the global batch's"
    mean = "the other a mean over its own shard"
    yield (
        "loss-not-scaled",
        f"{share}, {mean} that nothing divides by N = {n}",
        1.0,
        lambda _: 1.0,
    )
    if context.is_uneven:
        every = "so that every shard weighs 1/N"
        words = f"{share}, {mean} divided by N, {every}"
        yield "mean-of-means", words, 1.0, lambda _: 1 / n
    other = f"{kinds}: one is a mean over its own shard, the other"
    twice = f"{other} its share; both count 1/{n}"
    yield "loss-scaled-twice", twice, 1 / n, lambda _: 1 / n
    times = f"{other} N = {n} times its share"
    yield "loss-not-scaled", times, float(n), lambda _: 1.0
    for code, factor, words in (
        ("loss-not-scaled", float(n), f"N = {n} times its share"),
        ("loss-scaled-twice", 1 / n, f"its share, divided by N = {n} once more"),
    ):
        told = f"{share}, the other {words}"
        yield code, told, factor, lambda share: share
        yield code, told, 1.0, lambda share, f=factor: f * share  # type: ignore[misc]


def _weigh(
    parts: Sequence[Part], of_sums: float, of_means: Callable[[float], float]
) -> Array:
    terms = [of_sums * total + of_means(share) * mean for share, total, mean in parts]
    return np.asarray(np.sum(terms, axis=0))
