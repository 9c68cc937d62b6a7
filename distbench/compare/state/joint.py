"""Losses that read each replica's own copy of what is meant to be that of all.

State with synchronization `ON_READ` has a copy for each replica. Its aggregation makes
one value of them where it is read outside of a replica's step; inside, each replica
reads its own. One device has one value, of all examples. See
`distbench.worker.one_device.joint` for what it is asked.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from distbench.compare.arrays.measure import Margin
from distbench.compare.arrays.noise import Noise
from distbench.compare.arrays.ratio import SAME
from distbench.compare.nature.grouping import find_nature
from distbench.compare.state.joined import list_ways
from distbench.compare.state.leading import is_trained
from distbench.compare.state.led_shards import collect_led
from distbench.compare.state.totals import list_read
from distbench.evidence import Evidence
from distbench.trace import COMPUTED, WHOLE, Trace, TraceKey, Values
from distbench.trace.numbers import densify, measure_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Apart:
    """What a shard gives from its own copies, and not from what all examples made.

    Attributes:
        key: The first such loss or gradient.
        replicas: Whose shards give something else in that step.
        error: How far they are apart: largest error of an element.
        bound: How far equal values may lie apart.
    """

    key: TraceKey
    replicas: tuple[int, ...]
    error: float
    bound: float


def is_led_by_kept(evidence: Evidence, noise: Noise) -> bool:
    """Whether it matters what a replica has kept, and else not who has which example.

    Shards that start from one state make up the global batch's gradients then.
    """
    joint = _start_jointly(evidence)
    return joint is not None and not find_nature(joint, noise).grouped


def list_read_apart(evidence: Evidence, noise: Noise) -> tuple[str, ...]:
    """State of all that losses read in the replicas' own copies.

    Its declared value is the sum or the mean of the copies, and on one device it is
    what all shards make of it together. What nobody declares so is meant for a replica
    alone, and what no shards make up, as a buffer of examples, has no value of all.
    """
    joint = _start_jointly(evidence)
    if joint is None or not is_led_by_kept(evidence, noise):
        return ()
    read = list_read(evidence)
    return tuple(
        info.path
        for info in evidence.observed.variables
        if info.path in read
        and info.role == "variable"
        and (info.adds_up or info.averages)
        and not is_trained(evidence, info.path)
        and _is_of_all(joint, noise, info.path)
    )


def find_first_apart(evidence: Evidence, noise: Noise) -> Apart | None:
    """The first loss, or else gradient, that follows from own copies."""
    joint, found = evidence.probes["joint"], []
    for place, phase in enumerate(COMPUTED):
        for key, value in joint.select(phase=phase):
            own = evidence.reference.get(key)
            if own is None:
                continue
            due = densify(value)
            bound = float(np.max(noise.find_margin(key, due).bound))
            error = measure_size(densify(own) - due)
            if error > bound:
                found.append((key.step, place, error, bound, key))
    if not found:
        return None
    step, place, *_ = min(one[:2] for one in found)
    first = [one for one in found if one[:2] == (step, place)]
    _, _, error, bound, key = max(first, key=lambda one: one[2])
    return Apart(
        key=key,
        replicas=tuple(sorted({one[-1].replica for one in first})),
        error=error,
        bound=bound,
    )


def _start_jointly(evidence: Evidence) -> Evidence | None:
    """With shards that start from what all examples have made of the own copies."""
    joint = evidence.probes.get("joint")
    if joint is None:
        return None
    names = [n for n in ("regrouped", "doubled") if n in evidence.probes]
    others = {
        n: _join(evidence.probes[n], evidence.probes[f"joint-{n}"]) for n in names
    }
    return replace(
        evidence,
        reference=_join(evidence.reference, joint),
        probes={**evidence.probes, **others},
    )


def _join(trace: Trace, later: Trace) -> Trace:
    """A trace with the values of another one in the place of its own."""
    # Held, and not read: large ones lie on disk.
    values = {**Values(trace.values).held, **Values(later.values).held}
    return replace(trace, values=Values(values))


def _is_of_all(joint: Evidence, noise: Noise, path: str) -> bool:
    """Whether shards that start from one state make up one device's in every step.

    As a sum or a mean, or by their largest or smallest. In the first step no double
    tells what of it counts examples.
    """
    steps = range(1, joint.reference.steps)
    keys = [
        TraceKey(step=s, phase="variable", variable=path, replica=WHOLE) for s in steps
    ]
    return all(_is_made_up(joint, noise, key) for key in keys)


def _is_made_up(joint: Evidence, noise: Noise, key: TraceKey) -> bool:
    value = joint.reference.get(key)
    if value is None:
        return False
    whole = densify(value)
    allowed = noise.find_margin(key, whole).bound
    led = collect_led(joint, key, Margin(bound=allowed))
    if led is None:
        return False
    n = len(led.shards)
    moved = measure_size(whole - led.before)
    led = replace(led, margin=Margin(bound=SAME * moved + 2 * n * allowed))
    is_led = any(not led.is_near(shard, whole) for shard in led.shards)
    ways = [
        *list_ways(joint, led),
        np.max(led.shards, axis=0),
        np.min(led.shards, axis=0),
    ]
    return is_led and any(led.is_near(np.asarray(way), whole) for way in ways)
