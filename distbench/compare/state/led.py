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
from dataclasses import replace
from typing import cast

import numpy as np

from distbench.compare.arrays.measure import Margin
from distbench.compare.arrays.noise import Noise
from distbench.compare.arrays.pair import GLOBAL, Pair
from distbench.compare.nature.given import exchanges
from distbench.compare.state.joined import list_ways
from distbench.compare.state.leading import is_trained
from distbench.compare.state.led_shards import Led, collect_led, is_read_first
from distbench.evidence import Evidence
from distbench.trace import TraceKey
from distbench.trace.numbers import Array, densify, measure_size

TOGETHER = "one device, what the shards together make of it"


def list_led(evidence: Evidence, noise: Noise) -> Iterator[Pair]:
    """A pair for each copy of state of which it is told whose examples lead it.

    Where the whole batch of one device is the measure, only of that which is wrong.
    """
    if evidence.observed.replicas == 1:
        return
    # A free run has left the reference behind after its first step.
    steps = 1 if evidence.tier == "free" else evidence.observed.steps
    shared, taken = _list_shared(evidence), _list_taken(evidence)
    shown = evidence.observed.metric_paths
    for info in evidence.observed.variables:
        is_read = is_read_first(info) and info.path not in shown
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
    counted = evidence.observed.metric_paths | _list_shared(evidence)
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
        ways = list_ways(evidence, led)
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
    shared = evidence.observed.notes.get("shared_state", ())
    return set(cast(Sequence[str], shared)) if exchanges(evidence, what) else set()


def _is_mean(evidence: Evidence, led: Led) -> bool:
    """Whether shards, by their sizes, make up what one device has of the whole."""
    whole = evidence.reference.get(led.key)
    return whole is None or led.is_near(densify(whole), list_ways(evidence, led)[0])


def _find_led(evidence: Evidence, noise: Noise, key: TraceKey) -> Led | None:
    whole = evidence.reference.get(key)
    if whole is None:
        return None
    margin = Margin(bound=noise.find_margin(key, densify(whole)).bound)
    led = collect_led(evidence, key, margin)
    if led is None or evidence.measure.lost == 0:
        return led
    # Of what the step adds half of the narrower dtype's digits, of what is there a u.
    change = evidence.measure.lost * measure_size(densify(whole) - led.before)
    stored = evidence.measure.lost**2 * measure_size(densify(whole))
    return replace(led, margin=Margin(bound=margin.bound + change + stored))


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
    yield from list_ways(evidence, led)


def _pair_led(
    evidence: Evidence, led: Led, dtype: str, *, may_lead: bool
) -> Iterator[Pair]:
    """Against what all shards give together, in the way that the copies show.

    Where each holds what one shard alone gives, against the mean over the examples, if
    that is what the copies may follow.
    """
    whole = evidence.reference.get(led.key)
    ways = list_ways(evidence, led)
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
