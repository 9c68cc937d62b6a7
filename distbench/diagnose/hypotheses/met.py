"""Own means, of losses from whose gradients the step goes on to other losses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from distbench.compare.arrays.pair import Pair
from distbench.compare.arrays.ratio import SAME, share_by_size
from distbench.diagnose.clues.cases import take_rows
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.fit import add_weighted
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.trace import COMPUTED, WHOLE, Trace
from distbench.trace.numbers import Array, measure_size

_MEANS = (
    ("met-sum", "loss-not-scaled", "not divided by the number of replicas", 0),
    (
        "met-sum-divided",
        "mean-of-means",
        "divided by their number, so every shard weighs 1/N whatever its size",
        -1,
    ),
)


def explain_by_own_means_on_the_way(context: Context) -> Iterator[Hypothesis]:
    """Each shard counts 1, or 1/N, where it should count by its examples.

    No factor shows that of a loss behind a climb or a first turn: uneven shards lead
    another way than the global batch does. One device says what shards come to that
    meet so.
    """
    probes, n = context.evidence.probes, context.replicas
    if context.phase not in COMPUTED or not _is_mean(context):
        return
    for name, code, words, power in _MEANS:
        counts = [float(n) ** power] * n
        predicted = {
            number: found
            for number, case in context.list_cases()
            if (found := _predict(context, probes[name], case, counts)) is not None
        }
        yield Hypothesis(
            code=code,
            predicted=predicted,
            detail=f"each replica's loss is a mean over its own shard, {words}, and so "
            "is the one from whose gradients the step goes on to it",
        )


def _is_mean(context: Context) -> bool:
    """Whether what is due is made of means over the shards, by their sizes."""
    met = context.evidence.probes.get("met-mean")
    if met is None:
        return False
    for _, case in context.list_cases():
        shares = share_by_size(context.get_shards(case))
        due = _predict(context, met, case, shares)
        size = measure_size(case.expected)
        if due is None or measure_size(due - case.expected) > SAME * size:
            return False
    return True


def _predict(
    context: Context, met: Trace, case: Pair, counts: Sequence[float]
) -> Array | None:
    """What shards that count so much each come to in a case.

    Losses that are averaged are reported as they are. Of undeclared ones nobody knows.
    """
    replicas = range(met.replicas)
    chosen = replicas if case.key.replica == WHOLE else [case.key.replica]
    values = [met.get(case.key.at(replica)) for replica in chosen]
    parts = [take_rows(value, case) for value in values if value is not None]
    if len(parts) < len(values):
        return None
    summed = add_weighted([counts[replica] for replica in chosen], parts)
    averaged = np.asarray(np.mean(parts, axis=0))
    kind = context.evidence.subject.loss_reduction
    if case.key.phase != "loss" or kind == "sum":
        return summed
    if kind == "mean":
        return averaged
    return min((summed, averaged), key=lambda way: measure_size(way - case.observed))
