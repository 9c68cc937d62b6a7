"""Slots that keep a statistic, such as a norm, of a shard's gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from distbench.compare.least_squares import solve_least_squares
from distbench.compare.pair import Pair
from distbench.compare.values import (
    Array,
    densify,
    measure_norm,
    measure_size,
    take_numbers,
)
from distbench.diagnose.context import Context, Hypothesis, find_base
from distbench.diagnose.hypotheses.overflow import is_applied_to_some
from distbench.diagnose.hypotheses.slot_facts import SlotRule
from distbench.trace import WHOLE, TraceKey, Value

_ALL = 1e-5
"""How much of the right value the slot's rule may leave; more is another rule."""
_NEAR = 1e-3
"""How much of an error a prediction may leave, if it holds in several numbers."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Statistic:
    """A number, or an array of them, made of some variables' gradients.

    Attributes:
        words: What it is called.
        measure: Makes it of their gradients.
        of: The variable whose gradient alone it takes; empty for those that a slot
            names, or all.
    """

    words: str
    measure: Callable[[Sequence[Value]], Array]
    of: str = ""


def explain_by_local_statistic(context: Context) -> Iterator[Hypothesis]:
    """A norm, a largest or a mean element is that of each replica's gradients alone.

    Such a statistic is not linear: neither a sum nor a mean of those of the shards is
    that of the sum. One device tells the slot's rule, β before + c s(Σ g); with s of
    the replicas' own gradients in it there is nothing left to fit.
    """
    if context.replicas == 1 or not keeps_gradients(context):
        return
    paths = tuple(dict.fromkeys(case.key.variable for case in context.cases))
    for statistic in (*_list_statistics(), *_list_products(context)):
        rules = {
            path: rule
            for path in paths
            if (rule := _fit_rule(context, path, statistic)) is not None
        }
        if rules:
            yield from _feed_own(context, statistic, rules)


def explain_by_unknown_statistic(context: Context) -> Iterator[Hypothesis]:
    """A slot keeps something of each replica's own gradients, whatever that is.

    One device is fed with them. Where it keeps something of the sum as well, nothing
    changes with what it is fed.
    """
    apart = context.evidence.fed.apart
    if context.replicas == 1 or apart is None or not keeps_gradients(context):
        return
    for who, combine in _list_weighted(context.replicas):
        predicted = {}
        for number, case in context.list_cases():
            own = [densify(value) for value in apart.get_replicas(case.key)]
            is_known = not is_applied_to_some(context, case.key.step)
            if own and is_known:
                predicted[number] = combine(own, case.key.replica)
        yield Hypothesis(
            code="slot-from-local-gradient",
            predicted=predicted,
            detail=f"it keeps what one device makes of {who}, not of the reduced "
            "gradient",
        )


def keeps_gradients(context: Context) -> bool:
    """Whether all that is wrong follows from gradients of others: slots, and the like.

    Variables of the model may do so too, where a program updates by hand.
    """
    wrong = {case.key.variable for case in context.cases}
    return context.phase == "slot" or wrong <= set(context.evidence.subject.kept)


def _feed_own(
    context: Context, statistic: Statistic, rules: Mapping[str, SlotRule]
) -> Iterator[Hypothesis]:
    """What the rules leave, given the replicas' own gradients in one way or another."""
    for who, combine in _list_combinations(context.replicas):
        predicted: dict[int, Array] = {}
        for number, case in context.list_cases():
            rule = rules.get(case.key.variable)
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
    yield (
        "the replicas' own gradients, averaged",
        lambda own, _: np.asarray(np.mean(own, axis=0)),
    )
    for one in range(min(replicas, 8)):
        yield (
            f"the gradients of replica {one}",
            lambda own, _, k=one: own[k],  # type: ignore[misc]
        )


def _list_combinations(
    replicas: int,
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


def _list_statistics() -> Iterator[Statistic]:
    yield Statistic(words="the norm", measure=_measure_norm)
    yield Statistic(
        words="the norm",
        measure=lambda found: _measure_norm([take_numbers(v) for v in found]),
    )
    yield Statistic(
        words="the squared norm", measure=lambda found: _measure_norm(found) ** 2
    )
    yield Statistic(
        words="the largest element",
        measure=lambda found: np.asarray(max(measure_size(densify(v)) for v in found)),
    )
    yield Statistic(
        words="the mean absolute value",
        measure=lambda found: np.asarray(
            np.mean(np.abs(np.concatenate([densify(v).ravel() for v in found])))
        ),
    )
    yield Statistic(
        words="the absolute value", measure=lambda found: np.abs(densify(found[0]))
    )


def _list_products(context: Context) -> Iterator[Statistic]:
    """Squares of a matrix along its rows or columns, and the products of these.

    Rules that factor their second moments, or precondition by them, keep such arrays.
    They need not bear the name of their variable, and may have the shape of another, so
    their own shape tells of which they may be made. A mean is a sum but for a number,
    which is fitted.
    """
    shapes = {case.expected.shape for case in context.cases}
    for info in context.infos.values():
        if info.role != "variable" or len(info.shape) != 2:
            continue
        rows, columns = info.shape
        for shape, words, measure in (
            ((rows,), "the squares of each row", _square_rows),
            ((columns,), "the squares of each column", _square_columns),
            ((rows, rows), "the products of the rows", _multiply_rows),
            ((columns, columns), "the products of the columns", _multiply_columns),
        ):
            if shape in shapes:
                yield Statistic(words=words, measure=measure, of=info.path)


def _square_rows(found: Sequence[Value]) -> Array:
    return np.asarray(np.sum(densify(found[0]) ** 2, axis=1))


def _square_columns(found: Sequence[Value]) -> Array:
    return np.asarray(np.sum(densify(found[0]) ** 2, axis=0))


def _multiply_rows(found: Sequence[Value]) -> Array:
    gradient = densify(found[0])
    return np.asarray(gradient @ gradient.T)


def _multiply_columns(found: Sequence[Value]) -> Array:
    gradient = densify(found[0])
    return np.asarray(gradient.T @ gradient)


def _measure_norm(found: Sequence[Value]) -> Array:
    return np.asarray(np.sqrt(sum(measure_norm(densify(v)) ** 2 for v in found)))


def _fit_rule(context: Context, path: str, statistic: Statistic) -> SlotRule | None:
    """The numbers with which a slot keeps a statistic on one device, if it does."""
    evidence = context.evidence
    taken, start, right = [], [], []
    for step in range(evidence.reference.steps):
        before = evidence.get_before(step, context.phase, path)
        key = TraceKey(step=step, phase=context.phase, variable=path, replica=WHOLE)
        after = evidence.reference.get(key)
        found = _take_gradients(context, path, step, WHOLE, statistic)
        if before is None or after is None or not found:
            continue
        made = statistic.measure(found)
        if made.shape != densify(after).shape:
            return None
        taken.append(made.ravel())
        start.append(densify(before).ravel())
        right.append(densify(after).ravel())
    if not taken:
        return None
    target = np.concatenate(right)
    features = np.stack([np.concatenate(taken), np.concatenate(start)], axis=1)
    for columns in (features[:, :1], features):
        weights = solve_least_squares(columns, target)
        if weights is None or weights[0] == 0:
            continue
        if measure_size(columns @ weights - target) <= _ALL * measure_size(target):
            keep = float(weights[1]) if len(weights) > 1 else 0.0
            return SlotRule(keep=keep, take=float(weights[0]))
    return None


def _measure_own(
    context: Context, case: Pair, statistic: Statistic
) -> list[Array] | None:
    found = [
        _take_gradients(context, case.key.variable, case.key.step, replica, statistic)
        for replica in range(context.replicas)
    ]
    return [statistic.measure(own) for own in found] if all(found) else None


def _take_gradients(
    context: Context, path: str, step: int, replica: int, statistic: Statistic
) -> list[Value]:
    """A replica's gradients of the statistic's variable, or the slot's, or all."""
    owner = statistic.of or context.infos[path].of
    evidence = context.evidence
    trace = evidence.reference if replica == WHOLE else evidence.observed
    return [
        value
        for key, value in trace.select(
            step=step, phase="local_gradient", replica=replica
        )
        if owner in ("", key.variable)
    ]
