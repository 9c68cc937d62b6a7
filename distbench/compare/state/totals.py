"""State that every replica holds for itself, by what all of them together add to it.

The total and count of a metric, an accumulator of the replica's own gradients: what
one replica holds has no counterpart on one device. What all replicas together add in a
step may have one: on one device each shard is run alone, and where the shards' changes,
added up or averaged, are the change of the whole batch, the replicas' changes must be
so too. State that all replicas change alike, because it is computed from something that
they reduced, must be that of one device. What is trained and read as the mean of its
copies has one value nevertheless: the mean of what they gain must be the whole's gain.
The largest of the own examples, read as the sum of the copies, must be that of all
examples. Other such state is not judged.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Literal, cast

import numpy as np

from distbench.compare.arrays.bounds import find_roundoff
from distbench.compare.arrays.changes import (
    Changes,
    Copy,
    change_alike,
    find_changes,
    list_changes,
)
from distbench.compare.arrays.measure import BITWISE, Margin, measure_error
from distbench.compare.arrays.noise import Noise
from distbench.compare.arrays.pair import Pair
from distbench.compare.state.leading import is_unmoved
from distbench.evidence import Evidence
from distbench.trace import INITIAL, WHOLE
from distbench.trace.numbers import Array, are_equal, densify, measure_size

TOTAL = "one device, what the step adds for the global batch"

Way = Literal["sum", "mean", "each"]
"""How copies make up what one device adds: added up, on average, or each by itself."""


def list_totals(evidence: Evidence, noise: Noise) -> Iterator[Pair]:
    """A pair for each step and variable of which one device tells the total."""
    infos = evidence.observed.variables
    if all(info.synchronised for info in infos):
        return
    owners = {path: m.name for m in evidence.observed.metrics for path in m.state}
    for step in range(evidence.observed.steps):
        found = [find_changes(evidence, info, step) for info in infos]
        for is_own, group in groupby(found, key=lambda changes: changes is not None):
            # State that every replica has for itself, one beside the other.
            block = [changes for changes in group if changes is not None]
            if is_own:
                yield from _pair_block(evidence, noise, block, owners)


def _pair_block(
    evidence: Evidence,
    noise: Noise,
    block: Sequence[Changes],
    owners: Mapping[str, str],
) -> Iterator[Pair]:
    """A pair for each of some state; `owners` are metrics, by paths of theirs."""
    counts = [changes for changes in block if _counts(evidence, changes)]
    for changes in block:
        # Of a metric its own counts tell, and no others.
        owner = owners.get(changes.info.path)
        counted = any(
            count is not changes and owners.get(count.info.path) == owner
            for count in counts
        )
        # What a metric shows of the largest values that it holds tells of them.
        yield from _pair_total(
            evidence, noise, changes, counted=counted, shown=owner is not None
        )


def _counts(evidence: Evidence, changes: Changes) -> bool:
    """Whether it is a count of updates, and no constant."""
    first = evidence.reference.get(replace(changes.key, step=INITIAL, replica=WHOLE))
    is_moved = first is None or not are_equal(densify(first), changes.whole.after)
    return is_moved and changes.counts_updates


def list_idle(evidence: Evidence) -> Iterator[tuple[int, str]]:
    """Steps and variables that nobody changes, on one device or on the cluster."""
    for changes in list_changes(evidence):
        copies = (changes.whole, *changes.shards, *changes.replicas)
        if not any(np.any(copy.change) for copy in copies):
            yield changes.key.step, changes.info.path


def list_extremes(evidence: Evidence, noise: Noise) -> Iterator[tuple[int, str]]:
    """Steps and variables that hold the largest, or the smallest, of all examples.

    On one device it is that of what the shards leave, which neither adds up nor has a
    mean; on the cluster it is right if it is that of the copies, or their sum.
    """
    for changes in _list_without_way(evidence, noise):
        copies = changes.replicas
        allowed = find_allowed(noise, changes, copies)
        if _are_extremes(noise, changes) and (
            is_extreme(changes, copies, allowed) or _is_sum(changes, allowed)
        ):
            yield changes.key.step, changes.info.path


def list_given_alike(evidence: Evidence, noise: Noise) -> Iterator[tuple[int, str]]:
    """Steps and variables to which each replica adds what the whole adds, N times.

    Nobody can tell from the shards whether that is one addend too many, or one that a
    count beside it divides by: what is made of it tells.
    """
    for changes in _list_without_way(evidence, noise):
        if not change_alike(changes.replicas):
            continue
        own = changes.replicas[:1]
        allowed = find_allowed(noise, changes, own)
        if np.all(np.abs(own[0].change - changes.whole.change) <= allowed):
            yield changes.key.step, changes.info.path


def _list_without_way(evidence: Evidence, noise: Noise) -> Iterator[Changes]:
    """State that is read as the sum of its copies, of which shards do not tell."""
    for changes in list_changes(evidence):
        if changes.info.adds_up and _find_way(evidence, noise, changes) is None:
            yield changes


def is_extreme(
    changes: Changes, copies: Sequence[Copy], allowed: Array | float
) -> bool:
    """Whether the global batch leaves the largest, or smallest, of what copies hold."""
    held = [copy.after for copy in copies]
    whole = changes.whole.after
    return any(
        bool(np.all(np.abs(end - whole) <= allowed))
        for end in (np.max(held, axis=0), np.min(held, axis=0))
    )


def _holds_extremes(noise: Noise, changes: Changes) -> bool:
    """Whether copies that are read as their sum hold extremes of the own examples.

    Of flags the sum tells as well whether any is set.
    """
    shards = changes.shards
    is_flag = all(np.all((c.after == 0) | (c.after == 1)) for c in shards)
    if not changes.info.adds_up or is_flag or change_alike(shards):
        return False
    return _are_extremes(noise, changes)


def _are_extremes(noise: Noise, changes: Changes) -> bool:
    """Whether one device has the largest, or smallest, of what the shards leave."""
    shards = changes.shards
    allowed = find_allowed(noise, changes, shards)
    return is_extreme(changes, shards, allowed)


def list_read(evidence: Evidence) -> Sequence[str]:
    """State of the replicas' own that losses read."""
    joint = evidence.probes.get("joint")
    return () if joint is None else cast(Sequence[str], joint.notes.get("read", ()))


def _is_sum(changes: Changes, allowed: Array | float) -> bool:
    total = np.sum([copy.after for copy in changes.replicas], axis=0)
    return bool(np.all(np.abs(total - changes.whole.after) <= allowed))


def _pair_total(
    evidence: Evidence,
    noise: Noise,
    changes: Changes,
    *,
    counted: bool,
    shown: bool,
) -> Iterator[Pair]:
    """What the replicas add, as a sum or as a mean, against the global batch's.

    Args:
        evidence: What was observed and expected.
        noise: Of the single-device run.
        changes: What the step does to each copy.
        counted: Whether a count of updates stands beside it. Fed with N times its share
            by every replica, as tutorials do it, a mean divides by that count.
        shown: Whether a metric has it, and shows something of it.
    """
    found = _find_way(evidence, noise, changes)
    is_value = changes.info.is_mean_of_copies
    if found is None and is_value and "variable" in evidence.measure.known:
        # Each copy may go its own way; what they are read as has to be one device's.
        found = "each", np.zeros_like(changes.whole.change)
    # What losses read of it in each replica says more: see `joint`.
    shown = shown or changes.info.path in list_read(evidence)
    if found is None and not shown and _holds_extremes(noise, changes):
        found, counted = ("sum", np.zeros_like(changes.whole.change)), False
    if found is None or _follows_others(evidence, changes):
        return
    way, rest = found
    terms = [copy.change for copy in changes.replicas]
    margin = _bound_total(evidence, noise, changes, rest)
    pair = Pair(
        key=changes.key,
        relation="average" if is_value else "total",
        against=TOTAL,
        observed=np.asarray(np.sum(terms, axis=0)),
        expected=changes.whole.change,
        margin=margin,
        dtype=changes.info.dtype,
        terms=tuple(terms),
    )
    averages = changes.info.averages
    is_mean = is_value or (changes.info.is_carried and averages)
    # What is read as a mean may be fed with N times each share.
    if way != "sum" or counted or averages or is_value:
        n = len(terms)
        shares = tuple(np.asarray(term / n) for term in terms)
        mean = replace(pair, observed=np.asarray(pair.observed / n), terms=shares)
        may_be = way == "mean" or not is_total_wrong(mean)
        if way == "each" or is_mean or (may_be and _is_nearer(mean, pair)):
            pair = mean
    yield pair


def _follows_others(evidence: Evidence, changes: Changes) -> bool:
    """Whether it follows from sums that the reference does not know.

    A copy of weights that each replica has for itself goes where the replicas' own
    gradients lead them, as under batch statistics of each shard.
    """
    if "variable" in evidence.measure.known:
        return False
    replay = evidence.fed.replays.get("reduced_gradient")
    keys = [changes.key.at(replica) for replica in range(len(changes.replicas))]
    return replay is not None and any(
        replay.get(key) is not None and not is_unmoved(evidence, key) for key in keys
    )


def _find_way(
    evidence: Evidence, noise: Noise, changes: Changes
) -> tuple[Way, Array] | None:
    """How the shards' changes make up the whole's on one device.

    A variable that is read as the sum of its copies, and of which each shard gives a
    mean, can only be divided by a count: what comes out is the mean over the replicas.

    Returns:
        The way, and what is left between them, which is rounding; None where they do
        neither, or so little that both a sum and a mean would do.
    """
    if changes.is_shared:
        return "each", np.zeros_like(changes.whole.change)
    n = len(changes.shards)
    allowed = find_allowed(noise, changes, changes.shards)

    def measure(weights: Sequence[float]) -> Array:
        parts = [w * c.change for w, c in zip(weights, changes.shards, strict=True)]
        mean = np.sum(parts, axis=0) / sum(weights)
        return np.asarray(np.abs(mean - changes.whole.change))

    total = np.sum([copy.change for copy in changes.shards], axis=0)
    whole = np.asarray(np.abs(total - changes.whole.change))
    even = measure([1.0] * n)
    adds, averages = bool(np.all(whole <= allowed)), bool(np.all(even <= allowed))
    if adds != averages or n == 1:
        return ("sum", whole) if adds else ("mean", even) if averages else None
    if adds or not changes.info.adds_up:
        return None
    by_size = measure(evidence.reference.get_shards(changes.key.step))
    return ("mean", by_size) if np.all(by_size <= allowed) else None


def _bound_total(
    evidence: Evidence, noise: Noise, changes: Changes, rest: Array
) -> Margin:
    """Noise of one device, what its own split leaves, and the replicas' roundings."""
    if noise.exact or _is_representable(evidence, changes, rest):
        return BITWISE
    return Margin(bound=rest + find_allowed(noise, changes, changes.replicas))


def find_allowed(noise: Noise, changes: Changes, copies: Sequence[Copy]) -> Array:
    """How far what copies make up may lie from the whole's, by rounding alone.

    Noise is that of all steps so far: nothing sets a replica's own state right between.
    Copies are stored rounded besides, before and after: |fl(x) - x| ≤ u |fl(x)|.

    Args:
        noise: Of the single-device run.
        changes: What the step does to each copy.
        copies: Those that make it up.
    """
    key, after = changes.key, changes.whole.after
    steps = range(key.step + 1)
    own = sum(noise.find_margin(replace(key, step=s), after).bound for s in steps)
    u = find_roundoff(changes.info.dtype)
    sizes = [np.abs(copy.before) + np.abs(copy.after) for copy in copies]
    return np.asarray(own + u * np.sum(sizes, axis=0))


def _is_representable(evidence: Evidence, changes: Changes, rest: Array) -> bool:
    """Whether no sum can have rounded: all are multiples of one unit, none too large.

    Counts are. To tell them from numbers that happen to end in zeros, half of their
    digits must be left free, and every twin must repeat them but for its perturbation.
    """
    copies = (changes.whole, *changes.shards, *changes.replicas)
    arrays = [array for copy in copies for array in (copy.before, copy.after)]
    top = sum(measure_size(array) for array in arrays)
    if np.any(rest) or not math.isfinite(top):
        return False
    u = find_roundoff(changes.info.dtype)
    unit = 2.0 ** math.ceil(math.log2(top * math.sqrt(u))) if top * u > 0 else 1.0
    twins = [value for t in evidence.twins if (value := t.get(changes.key)) is not None]
    return all(not np.any(array % unit) for array in arrays) and all(
        are_equal(np.round(densify(value) / unit) * unit, changes.whole.after)
        for value in twins
    )


def _is_nearer(pair: Pair, other: Pair) -> bool:
    return measure_size(pair.observed - pair.expected) < measure_size(
        other.observed - other.expected
    )


def is_total_wrong(pair: Pair) -> bool:
    """Whether a total is beyond its margin."""
    return measure_error(pair.observed, pair.expected, pair.margin).wrong
