"""Each shard by itself as the reference of its replica."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from distbench.compare.arrays.least_squares import solve_least_squares
from distbench.compare.arrays.pull import apply_pull, tells_pull
from distbench.compare.arrays.ratio import share_by_size
from distbench.compare.nature.doubled import Places, take_gradients
from distbench.compare.nature.factor import Factors
from distbench.compare.nature.grouping import Nature
from distbench.compare.nature.parts import split_parts
from distbench.compare.nature.past_sum import find_settled, measure_slack
from distbench.evidence import Evidence, Measure
from distbench.trace import (
    COMPUTED,
    STATE,
    WHOLE,
    Trace,
    TraceKey,
    Value,
    Values,
    change_numbers,
)
from distbench.trace.numbers import Array, densify, measure_norm, measure_size

Shares = Mapping[int, tuple[float, ...]]
"""What each shard counts, by step."""
_NEAR = 1e-4
"""Asks whether one number stands for each shard, or a term is that of all shards; the
comparison decides."""


def weigh_shards(
    evidence: Evidence, nature: Nature, shares: Shares | None = None
) -> Evidence:
    """Take each shard by itself for the reference, and their sum for the whole batch's.

    What comes after the reduction is known only if the single-device run went on with
    the same gradient, or with none, or with one that is near it.

    Args:
        evidence: With the whole batch as its reference.
        nature: How a replica's value follows from that of its shard.
        shares: What each shard counts in a step, where no number of examples says.
    """
    reference = evidence.reference
    values = Values(reference.values)
    sums: dict[TraceKey, list[Array]] = {}
    times = _count_loss(evidence, nature)
    known = COMPUTED if judges_losses(evidence, nature) else COMPUTED[1:]
    alone = Values(reference.values).keep(
        lambda key: key.phase in known and key.replica != WHOLE
    )
    if evidence.fed.resumed is not None:
        # After an update that the shards lead, and not the global batch.
        alone.update(evidence.fed.resumed.values)
    for key, value in alone.items():
        sizes = reference.get_shards(key.step)
        counted = nature.weigh(sizes, key.phase)
        if shares and nature.get_kind(key.phase) == "mean":
            counted = shares[key.step]
        weight = counted[key.replica]
        weight *= times if key.phase == "loss" else 1.0
        values[key] = _weigh(evidence, nature, key, value, weight)
        sums.setdefault(replace(key, replica=WHOLE), []).append(densify(values[key]))
    totals = {
        # Losses that are averaged are N times what adds up to that of all.
        key: np.sum(parts, axis=0) / (times if key.phase == "loss" else 1.0)
        for key, parts in sums.items()
    }
    handed = {key: v for key, v in totals.items() if key.phase != "loss"}
    settled = find_settled(evidence, handed)
    made = Factors(reference)
    handed = {k: v for k, v in handed.items() if (k.step, k.variable) not in settled}
    factors = {key: made.find(key) for key in handed}
    if not (nature.grouped or nature.lost):
        known = (*known, "applied_gradient", *STATE)
    slack: Mapping[TraceKey, float] = {}
    is_scaled = None not in factors.values()
    if is_scaled or not nature.grouped:
        known = (*known, "reduced_gradient")
        values.update(totals)
    if is_scaled:
        for key, factor in factors.items():
            if factor is not None:
                values[replace(key, phase="reduced_gradient")] = (
                    factor.value * totals[key]
                )
    elif not nature.grouped:
        slack = measure_slack(reference, handed)
    return replace(
        evidence,
        reference=replace(reference, values=values),
        penalty=_make_penalty(evidence, nature),
        probes=_weigh_probes(evidence, nature, values),
        measure=Measure(
            known=known,
            settled=settled,
            parted=evidence.measure.parted,
            begun=evidence.measure.begun,
            overflowing=evidence.measure.overflowing,
            slack=slack,
            lost=0.0 if nature.grouped else nature.lost,
            times_share=evidence.measure.times_share,
        ),
    )


def judges_losses(evidence: Evidence, nature: Nature) -> bool:
    """Whether the loss of a shard alone says what its replica has to return."""
    if nature.kind == "terms":
        return nature.splits
    if not nature.pulls or (nature.splits and "once" not in evidence.probes):
        return True
    thetas = (_find_theta(evidence, variable, 0) for variable in nature.pulls)
    return all(map(tells_pull, thetas))


def _weigh_probes(
    evidence: Evidence, nature: Nature, weighed: Mapping[TraceKey, Value]
) -> Mapping[str, Trace]:
    """With doubled shards from which the parts of what replicas have to compute follow.

    Only of terms: a sum or a mean has no second part but rounding. State is no part of
    what a replica computes, and stays.
    """
    probes = dict(evidence.probes)
    doubled = probes.pop("doubled", None)
    if doubled is None:
        return probes
    values = Values(dict(doubled.select(phase="variable")))
    if nature.kind == "terms":
        values = Values({**doubled.values})
        for key, _ in doubled.select():
            parts = split_parts(evidence, key)
            if parts and key in weighed:
                total = parts[key.replica].total
                values[key] = np.asarray(densify(weighed[key]) + total)
    if values:
        probes["doubled"] = replace(doubled, values=values)
    return probes


def find_shares(evidence: Evidence) -> Shares | None:
    """What the shards count where each replica's mean has one weight in all gradients.

    A replica that divides by what all of them count makes W_r / ΣW of its shard's own
    mean. Nobody declares these: they are fitted to the sum of the gradients, of which
    they must leave nothing, and made to add up to 1, so that a factor on all of them
    shows. None where they do not fit, or are 1/N throughout: so count means of means.
    """
    shares: dict[int, tuple[float, ...]] = {}
    replicas = range(evidence.reference.replicas)
    for step in range(evidence.reference.steps):
        shards = [take_gradients(evidence.reference, r, step) for r in replicas]
        seen = [take_gradients(evidence.observed, r, step) for r in replicas]
        if not seen[0] or any(set(p) != set(seen[0]) for p in (*shards, *seen)):
            return None
        # Not scaled: of what has no gradient there is rounding alone.
        matrix = np.stack([_join(part, seen[0]) for part in shards], axis=1)
        total = np.sum([_join(part, seen[0]) for part in seen], axis=0)
        if len(total) < 4 * len(shards):
            return None
        fitted = solve_least_squares(matrix, total, determined=False)
        if fitted is None:
            return None
        rest = measure_norm(total - matrix @ fitted)
        if rest > _NEAR * measure_norm(total) or min(fitted) < 0 or not any(fitted):
            return None
        shares[step] = tuple(map(float, fitted / np.sum(fitted)))
    even = 1 / len(replicas)
    found = [share for counted in shares.values() for share in counted]
    return None if all(abs(share - even) <= _NEAR for share in found) else shares


def _join(part: Places, order: Iterable[tuple[str, int]]) -> Array:
    return np.concatenate([part[place].ravel() for place in order])


def _weigh(
    evidence: Evidence, nature: Nature, key: TraceKey, value: Value, weight: float
) -> Value:
    """What a replica has to compute, given what its shard alone gives."""
    if nature.kind == "terms":
        value = _weigh_terms(evidence, key, value)
    excess = 1 - 1 / evidence.reference.replicas
    if nature.pulls and (key.phase == "loss" or key.variable in nature.pulls):
        penalty = _find_penalty(evidence, nature, key)
        value = np.asarray(densify(value) - excess * penalty)
    if weight == 1.0:
        return value
    return change_numbers(
        value,
        lambda numbers: np.asarray(
            numbers.astype(np.float64) * weight, dtype=numbers.dtype
        ),
    )


def _weigh_terms(evidence: Evidence, key: TraceKey, value: Value) -> Value:
    """A replica's terms: a sum as it is, and a mean's share n_r/G of all examples.

    What is the same whatever the examples are, such as a penalty, is shared evenly.
    """
    parts = split_parts(evidence, key)
    if not parts:
        return value
    sizes = evidence.reference.get_shards(key.step)
    own = parts[key.replica]
    apart = max(measure_size(part.mean - own.mean) for part in parts)
    share = share_by_size(sizes)[key.replica]
    if apart <= _NEAR * measure_size(own.mean):
        share = 1 / len(parts)
    return np.asarray(own.total + share * own.mean)


def _find_penalty(evidence: Evidence, nature: Nature, key: TraceKey) -> Array | float:
    """What a shard alone has of the penalty: in its loss, or in a gradient.

    A loss scale may be on the gradients and not on the loss, and change by the step. So
    it is taken from what the shard with its examples twice does not have twice, unless
    that draws other random numbers.
    """
    if key.phase == "loss":
        made: Array | float = _measure_penalty(evidence, nature, key.step)
    else:
        made = _pull(evidence, nature, key.variable, key.step)
    is_split = key.phase != "loss" or nature.splits
    is_split = is_split and "once" not in evidence.probes
    parts = split_parts(evidence, key) if is_split else ()
    if not parts:
        return made
    kept = parts[key.replica].mean
    return np.where(np.isfinite(kept), kept, made)  # what overflows is not doubled


def _find_theta(evidence: Evidence, variable: str, step: int) -> Array:
    state = evidence.get_before(step, "variable", variable)
    return np.zeros(()) if state is None else densify(state)


def _pull(evidence: Evidence, nature: Nature, variable: str, step: int) -> Array:
    """Gradient of the penalty at a step."""
    return apply_pull(nature.pulls[variable], _find_theta(evidence, variable, step))


def _measure_penalty(evidence: Evidence, nature: Nature, step: int) -> float:
    total = 0.0
    for variable, (a, b) in nature.pulls.items():
        theta = _find_theta(evidence, variable, step)
        total += float(a / 2 * np.sum(theta**2) + b * np.sum(np.abs(theta)))
    return total


def _make_penalty(evidence: Evidence, nature: Nature) -> Trace | None:
    if not nature.pulls:
        return evidence.penalty
    keys = [
        TraceKey(step=step, phase="local_gradient", variable=name, replica=0)
        for step in range(evidence.reference.steps)
        for name in nature.pulls
    ]
    values: Mapping[TraceKey, Value] = {
        key.at(WHOLE): np.asarray(_find_penalty(evidence, nature, key)) for key in keys
    }
    return replace(evidence.reference, name="penalty", values=values)


def _count_loss(evidence: Evidence, nature: Nature) -> float:
    """N where the replicas report losses that are averaged, 1 where they add up."""
    weights = nature.weigh(evidence.reference.shards, "loss")
    n = len(weights)
    if evidence.subject.loss_reduction is not None:
        return float(n) if evidence.subject.loss_reduction == "mean" else 1.0
    seen = wanted = 0.0
    for replica, weight in enumerate(weights):
        key = TraceKey(step=0, phase="loss", variable="", replica=replica)
        observed, shard = evidence.observed.get(key), evidence.reference.get(key)
        if observed is None or shard is None:
            return 1.0
        seen += float(densify(observed))
        wanted += float(densify(_weigh(evidence, nature, key, shard, weight)))
    return float(n) if abs(seen - n * wanted) < abs(seen - wanted) else 1.0
