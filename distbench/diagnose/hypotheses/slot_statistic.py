"""Slots that keep a statistic, such as a norm, of a shard's gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from distbench.compare.arrays.pair import Pair
from distbench.compare.arrays.ratio import SAME
from distbench.diagnose.clues.cases import find_base
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.fit import Row, fit_weights, leaves_nothing
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.diagnose.hypotheses.kept_statistics import Statistic, list_statistics
from distbench.diagnose.hypotheses.overflow import is_applied_to_some
from distbench.diagnose.hypotheses.slot_facts import group_by_kind, keeps_gradients
from distbench.diagnose.hypotheses.statistic_rules import (
    Rules,
    fit_rules,
    take_gradients,
)
from distbench.trace.numbers import Array, densify, measure_size

_NEAR = 1e-3
"""How much of an error a prediction may leave, if it holds in several numbers."""


def explain_by_local_statistic(context: Context) -> Iterator[Hypothesis]:
    """A norm, a largest or a mean element is that of each replica's gradients alone.

    Such a statistic is not linear: neither a sum nor a mean of those of the shards is
    that of the sum. One device tells the slot's rule, β before + c s(Σ g), in each
    step; with s of the replicas' own gradients in it there is nothing left to fit.
    """
    if context.replicas == 1 or not keeps_gradients(context):
        return
    paths = tuple(dict.fromkeys(case.key.variable for case in context.cases))
    for statistic in list_statistics(context):
        rules = {
            path: found
            for path in paths
            if (found := fit_rules(context, path, statistic))
        }
        if rules:
            yield from _feed_own(context, statistic, rules)


def explain_by_unknown_statistic(context: Context) -> Iterator[Hypothesis]:
    """A slot keeps something of each replica's own gradients, whatever that is.

    One device is fed with them. Where it keeps something of the sum as well, nothing
    changes with what it is fed. What a linear rule makes of each, averaged, is what it
    makes of an N-th of the sum: a factor, and nothing of one shard.
    """
    apart = context.evidence.fed.apart
    if context.replicas == 1 or apart is None or not keeps_gradients(context):
        return
    fed: dict[int, Sequence[Array]] = {}
    for number, case in context.list_cases():
        own = [densify(value) for value in apart.get_replicas(case.key)]
        if own and not is_applied_to_some(context, case.key.step):
            fed[number] = own
    linear = _list_linear(context, fed)
    for who, combine in _list_weighted(context.replicas):
        predicted = {
            number: combine(own, context.cases[number].key.replica)
            for number, own in fed.items()
            if combine is not _average or number not in linear
        }
        yield Hypothesis(
            code="slot-from-local-gradient",
            predicted=predicted,
            detail=f"it keeps what one device makes of {who}, not of the reduced "
            "gradient",
        )


def _list_linear(context: Context, fed: Mapping[int, Sequence[Array]]) -> set[int]:
    """Cases whose rule is linear in the gradients: β before + b g.

    What it makes of the replicas' own ones, added up, has the old value N - 1 times
    more than what it makes of their sum.
    """
    found: set[int] = set()
    for cases in group_by_kind(context):
        rows = [
            Row(
                number=number,
                target=np.sum(fed[number], axis=0) - case.expected,
                features=(find_base(case),),
            )
            for number, case in cases
            if number in fed
        ]
        started = [row for row in rows if np.any(row.features[0])]
        weights = fit_weights(started)
        adds_up = all(
            measure_size(row.target)
            <= SAME * measure_size(context.cases[row.number].expected)
            for row in rows
        )  # as of a rule that keeps nothing
        if adds_up or (weights is not None and leaves_nothing(started, weights)):
            found |= {row.number for row in rows}
    return found


def _feed_own(
    context: Context, statistic: Statistic, rules: Mapping[str, Rules]
) -> Iterator[Hypothesis]:
    """What the rules leave, given the replicas' own gradients in one way or another."""
    for who, combine in _list_combinations(context.replicas, statistic.power):
        predicted: dict[int, Array] = {}
        for number, case in context.list_cases():
            rule = rules.get(case.key.variable, {}).get(case.key.step)
            own = _measure_own(context, case, statistic)
            if rule is not None and own is not None:
                taken = combine(own, case.key.replica)
                predicted[number] = rule.keep * find_base(case) + rule.take * taken
        yield Hypothesis(
            code="slot-from-local-gradient",
            predicted=_settle(context, predicted),
            detail=f"it keeps {statistic.words} of {who}, not of the reduced gradient",
        )


def _settle(context: Context, predicted: dict[int, Array]) -> dict[int, Array]:
    """The observed values, if all predicted ones are the same but for rounding.

    A prediction is less exact than the values: the rule's numbers were fitted to
    rounded ones.
    """
    pairs = [(context.cases[number], value) for number, value in predicted.items()]
    sizes = {
        (case.key.step, case.key.variable): case.observed.size for case, _ in pairs
    }
    if sum(sizes.values()) > 1 and all(
        value.shape == case.observed.shape
        and measure_size(value - case.observed)
        <= _NEAR * measure_size(case.expected - case.observed)
        for case, value in pairs
    ):
        return {number: context.cases[number].observed for number in predicted}
    return predicted


def _list_weighted(
    replicas: int,
) -> Iterator[tuple[str, Callable[[Sequence[Array], int], Array]]]:
    """What may be made of states as well, which have a share of the old one in each."""
    yield "each replica's own gradients", lambda own, r: own[r]
    yield "the replicas' own gradients, averaged", _average
    for one in range(min(replicas, 8)):
        yield (
            f"the gradients of replica {one}",
            lambda own, _, k=one: own[k],  # type: ignore[misc]
        )


def _average(own: Sequence[Array], _: int) -> Array:
    return np.asarray(np.mean(own, axis=0))


def _list_combinations(
    replicas: int, power: int
) -> Iterator[tuple[str, Callable[[Sequence[Array], int], Array]]]:
    yield from _list_weighted(replicas)
    yield (
        "the replicas' own gradients, added up",
        lambda own, _: np.asarray(np.sum(own, axis=0)),
    )
    yield (
        "the replicas' own gradients, added up as squares",
        lambda own, _: np.asarray(np.sqrt(np.sum(np.square(own), axis=0))),
    )
    yield (
        "the replicas' own gradients, the largest",
        lambda own, _: np.asarray(np.max(own, axis=0)),
    )
    yield (
        "N times the replicas' own gradients, averaged",
        lambda own, _: np.asarray(replicas**power * np.mean(own, axis=0)),
    )


def _measure_own(
    context: Context, case: Pair, statistic: Statistic
) -> list[Array] | None:
    found = [
        take_gradients(context, case.key.variable, case.key.step, replica, statistic)
        for replica in range(context.replicas)
    ]
    return [statistic.measure(own) for own in found] if all(found) else None
