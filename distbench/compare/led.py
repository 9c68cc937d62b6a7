"""State of the model that the examples lead, and no gradient.

A moving mean that the loss is made of may differ with the examples that are together:
one device does not say then what the replicas have to arrive at. It says what each
shard alone would make of it. Copies hold what all shards give together, or what one of
them gives: a variable that takes the first replica's value takes that of the first in
each process. Of state of the replicas' own the same is asked where a step only carries
it on and the first copy is what is read: the others are kept in vain.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from distbench.compare.leading import is_trained
from distbench.compare.measure import Margin, measure_error
from distbench.compare.noise import Noise
from distbench.compare.pair import GLOBAL, Pair
from distbench.compare.values import Array, densify, measure_size
from distbench.evidence import Evidence
from distbench.trace import WHOLE, TraceKey, VariableInfo

TOGETHER = "one device, what the shards together make of it"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Led:
    """One variable after a step.

    Attributes:
        key: Step and variable; replica `WHOLE`.
        before: On one device, before the step.
        shards: On one device, after the step of each shard alone.
        doubles: The same of shards with every example twice; empty if it is not known.
        copies: On the cluster, by replica.
        margin: How far equal values may lie apart.
        is_taken: Whether losses take what all replicas make of it, and shards do not
            make up the global batch's: then that is all it may be.
    """

    key: TraceKey
    before: Array
    shards: tuple[Array, ...]
    doubles: tuple[Array, ...] = ()
    copies: tuple[tuple[int, Array], ...]
    margin: Margin
    is_taken: bool = False

    def are_near(self, value: Array) -> bool:
        """Whether all copies hold a value."""
        return all(self.is_near(copy, value) for _, copy in self.copies)

    def is_near(self, copy: Array, value: Array) -> bool:
        """Whether one value is another, within the margin."""
        return not measure_error(copy, value, self.margin).wrong

    def add_up_to(self, value: Array) -> bool:
        """Whether what all copies gained leads to a value, as with what is counted."""
        gained = [copy - self.before for _, copy in self.copies]
        return self.is_near(np.asarray(self.before + np.sum(gained, axis=0)), value)

    def list_counts(self) -> list[Array]:
        """What each shard's examples add; the rest of its change is a mean of them."""
        pairs = zip(self.doubles, self.shards, strict=True)
        return [double - shard for double, shard in pairs]

    def join(self, counts: Sequence[Array], weights: Sequence[float]) -> Array:
        """What the shards' counts, added up, and the rest, by weights, make of it."""
        triples = zip(weights, self.shards, counts, strict=True)
        means = [w * (shard - self.before - count) for w, shard, count in triples]
        return np.asarray(self.before + np.sum([*counts, *means], axis=0))

    def find_leaders(self) -> dict[int, int]:
        """By replica, whose shard alone gives what its copy holds.

        Empty unless that is one shard for each copy.
        """
        found: dict[int, int] = {}
        for replica, copy in self.copies:
            near = [r for r, s in enumerate(self.shards) if self.is_near(copy, s)]
            if len(near) != 1:
                return {}
            found[replica] = near[0]
        return found


def list_led(evidence: Evidence, noise: Noise) -> Iterator[Pair]:
    """A pair for each copy of state of which it is told whose examples lead it.

    Where the whole batch of one device is the measure, only of that which is wrong.
    """
    if evidence.observed.replicas == 1:
        return
    # A free run has left the reference behind after its first step.
    steps = 1 if evidence.tier == "free" else evidence.observed.steps
    shared, metrics = _list_shared(evidence), evidence.observed.metrics
    taken = _list_taken(evidence)
    shown = {path for metric in metrics for path in metric.state}
    for info in evidence.observed.variables:
        is_read = _is_read_first(info) and info.path not in shown
        is_one = info.synchronised or is_read
        if info.role != "variable" or not is_one or info.path in shared:
            continue
        if not is_trained(evidence, info.path):
            keys = [
                TraceKey(step=step, phase="variable", variable=info.path)
                for step in range(steps)
            ]
            found = [_find_led(evidence, noise, key) for key in keys]
            leds = [led for led in found if led and not _follows(evidence, led)]
            may_lead = _lead_alike(evidence, leds)
            for led in leds:
                if info.path in taken and not _is_mean(evidence, led):
                    led = replace(led, is_taken=True)
                yield from _pair_led(evidence, led, info.dtype, may_lead=may_lead)


def _follows(evidence: Evidence, led: Led) -> bool:
    """Whether one device, fed with the replicas' gradients, comes to what they hold.

    An average of the weights after the step is wrong with these, and led by nobody.
    """
    replay = evidence.fed.replays.get("reduced_gradient")
    if replay is None:
        return False
    due = {r: replay.get(led.key.at(r)) for r, _ in led.copies}
    return all(
        (value := due[r]) is not None and led.is_near(copy, densify(value))
        for r, copy in led.copies
    )


def find_own_statistic(evidence: Evidence, noise: Noise) -> str | None:
    """A variable that holds what shards alone make of it, and not the whole batch.

    A moving average of batch statistics that nobody synchronises is such; what a
    metric counts is no part of a loss, and what takes the statistics that the losses
    take of all is not of the own ones, whatever it comes to. Nor is what the step makes
    of derivatives, as a curvature: these are there after the losses, and what they have
    to be is the derivative of the whole wherever the losses make that up.
    """
    counted = {path for metric in evidence.observed.metrics for path in metric.state}
    counted |= _list_shared(evidence)
    made = evidence.observed.notes.get("of_derivatives", ())
    counted |= set(cast(Sequence[str], made))
    for info in evidence.observed.variables:
        is_model = info.role == "variable" and info.path not in counted
        if not is_model or is_trained(evidence, info.path):
            continue
        key = TraceKey(step=0, phase="variable", variable=info.path)
        whole, led = evidence.reference.get(key), _find_led(evidence, noise, key)
        if whole is None or led is None or led.are_near(densify(whole)):
            continue
        if not info.synchronised and led.add_up_to(densify(whole)):
            continue  # each replica counts what is its own, and no loss is made of it
        ways = _list_ways(evidence, led)
        if led.find_leaders() or any(map(led.are_near, ways)):
            return info.path
    return None


def _list_shared(evidence: Evidence) -> set[str]:
    """State that nobody leads: it takes what the losses take of all replicas.

    Only where the global batch is the measure of these, as of features: else nothing
    would tell what either has to be.
    """
    return _list_exchanged(evidence, "features")


def _list_taken(evidence: Evidence) -> set[str]:
    """State that follows from data alone, of which losses take what replicas share."""
    return _list_exchanged(evidence, "data")


def _list_exchanged(evidence: Evidence, what: str) -> set[str]:
    """State that takes what the losses take of all, where that is of some kind."""
    notes = evidence.observed.notes
    is_it = notes.get("exchange") == what
    return set(cast(Sequence[str], notes.get("shared_state", ()))) if is_it else set()


def _is_mean(evidence: Evidence, led: Led) -> bool:
    """Whether shards, by their sizes, make up what one device has of the whole."""
    whole = evidence.reference.get(led.key)
    return whole is None or led.is_near(densify(whole), _list_ways(evidence, led)[0])


def _is_read_first(info: VariableInfo) -> bool:
    """Whether of the replicas' own state the first copy is all that ever counts."""
    return info.is_carried and info.takes_first


def find_leader(evidence: Evidence, pair: Pair) -> int | None:
    """The one replica whose examples alone give what was observed, if there is one."""
    led = _collect(evidence, pair.key.at(WHOLE), pair.margin)
    return None if led is None else led.find_leaders().get(pair.key.replica)


def _find_led(evidence: Evidence, noise: Noise, key: TraceKey) -> Led | None:
    whole = evidence.reference.get(key)
    if whole is None:
        return None
    margin = Margin(bound=noise.find_margin(key, densify(whole)).bound)
    led = _collect(evidence, key, margin)
    if led is None or evidence.measure.lost == 0:
        return led
    # Of what the step adds half of the narrower dtype's digits, of what is there a u.
    change = evidence.measure.lost * measure_size(densify(whole) - led.before)
    stored = evidence.measure.lost**2 * measure_size(densify(whole))
    return replace(led, margin=Margin(bound=margin.bound + change + stored))


def _collect(evidence: Evidence, key: TraceKey, margin: Margin) -> Led | None:
    """What is known of a variable after a step; None unless it is all of this."""
    reference, observed = evidence.reference, evidence.observed
    before = evidence.get_before(key.step, key.phase, key.variable)
    alone = tuple(map(densify, reference.get_replicas(key)))
    copies = [
        (place.replica, densify(value))
        for place, value in observed.select(
            step=key.step, phase=key.phase, variable=key.variable
        )
    ]
    if any(v.path == key.variable and _is_read_first(v) for v in observed.variables):
        copies = copies[:1]
    if before is None or not alone or not copies:
        return None
    arrays = [densify(before), *alone, *(copy for _, copy in copies)]
    if len({array.shape for array in arrays}) > 1:
        return None
    if not all(np.all(np.isfinite(array)) for array in (*arrays, margin.bound)):
        return None
    return Led(
        key=key,
        before=densify(before),
        shards=alone,
        doubles=_find_doubles(evidence, key, len(alone)),
        copies=tuple(copies),
        margin=margin,
    )


def _find_doubles(evidence: Evidence, key: TraceKey, count: int) -> tuple[Array, ...]:
    probe = evidence.probes.get("doubled")
    found = () if probe is None else probe.get_replicas(key)
    return tuple(map(densify, found)) if len(found) == count else ()


def _lead_alike(evidence: Evidence, leds: Sequence[Led]) -> bool:
    """Whether copies hold in each step what the same shards alone give.

    Of a few signs or counts a shard may give in one step what all give together, or
    what something else does. Steps in which copies hold what all give tell nothing.
    """
    leaders: dict[int, set[int]] = {}
    for led in leds:
        if any(map(led.are_near, _list_wholes(evidence, led))):
            continue
        for replica, copy in led.copies:
            near = {r for r, s in enumerate(led.shards) if led.is_near(copy, s)}
            leaders[replica] = leaders.get(replica, near) & near
    return bool(leaders) and all(leaders.values())


def _list_wholes(evidence: Evidence, led: Led) -> Iterator[Array]:
    """What all examples give, as one batch and as shards."""
    whole = evidence.reference.get(led.key)
    if whole is not None:
        yield densify(whole)
    yield from _list_ways(evidence, led)


def _pair_led(
    evidence: Evidence, led: Led, dtype: str, *, may_lead: bool
) -> Iterator[Pair]:
    """Against what all shards give together, in the way that the copies show.

    Where each holds what one shard alone gives, against the mean over the examples, if
    that is what the copies may follow.
    """
    whole = evidence.reference.get(led.key)
    ways = _list_ways(evidence, led)
    if whole is not None and (evidence.measure.lost or led.is_taken):
        ways = [densify(whole)]
    elif whole is not None and "variable" in evidence.measure.known:
        ways.insert(0, densify(whole))
    found = [way for way in ways if evidence.measure.lost or led.are_near(way)]
    if found and "variable" in evidence.measure.known:
        return
    if not found and (led.is_taken or (may_lead and led.find_leaders())):
        found = ways
    elif not found and whole is not None:
        # Shards may make up the whole of this variable, whatever the loss is made of.
        found = [way for way in ways if led.is_near(densify(whole), way)]
    if not found or all(not np.any(shard - led.before) for shard in led.shards):
        return
    for replica, copy in led.copies:
        yield Pair(
            key=replace(led.key, replica=replica),
            relation="led",
            against=GLOBAL if led.is_taken else TOGETHER,
            observed=copy,
            expected=found[0],
            margin=led.margin,
            dtype=dtype,
            base=led.before,
        )


def _list_ways(evidence: Evidence, led: Led) -> list[Array]:
    """How copies may join the shards' changes: weighed by size, averaged, added up.

    With its examples twice a shard adds twice as much to a count, and as much to a
    mean. Where that makes up what one device has of the whole batch, counts have to be
    added up and means to be averaged; else nobody tells.
    """
    by_size = _weigh_by_size(evidence, led)
    evenly = [1 / len(led.shards)] * len(led.shards)
    whole = evidence.reference.get(led.key)
    if led.doubles and whole is not None:
        counts = led.list_counts()
        ways = [led.join(counts, weights) for weights in (by_size, evenly)]
        if led.is_near(densify(whole), ways[0]):
            return ways
    nothing = [0 * shard for shard in led.shards]
    changes = [shard - led.before for shard in led.shards]
    return [
        led.join(nothing, by_size),
        led.join(nothing, evenly),
        led.join(changes, evenly),
    ]


def find_averaged(evidence: Evidence, pair: Pair) -> Array | None:
    """What replicas come to that average what they have to add up.

    None of what is no count of examples, or a sum over them.
    """
    led = _collect(evidence, pair.key.at(WHOLE), pair.margin)
    if led is None or not led.doubles:
        return None
    counts = led.list_counts()
    due = led.join(counts, _weigh_by_size(evidence, led))
    is_count = any(not led.is_near(led.before + n, led.before) for n in counts)
    if not is_count or not led.is_near(pair.expected, due):
        return None
    return np.asarray(np.mean(led.shards, axis=0))


def _weigh_by_size(evidence: Evidence, led: Led) -> list[float]:
    sizes = evidence.reference.get_shards(led.key.step)
    return [size / max(1, sum(sizes)) for size in sizes]
