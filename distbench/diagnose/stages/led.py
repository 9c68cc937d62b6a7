"""What is wrong only because statistics follow the examples of single replicas."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from distbench.compare.comparison import Judged
from distbench.compare.nature.grouping import Nature, find_nature
from distbench.compare.state.led_shards import find_leader
from distbench.compare.state.measured_noise import measure_noise
from distbench.evidence import Evidence
from distbench.trace import COMPUTED
from distbench.trace.numbers import densify
from distbench.verdict import Finding


def leave_out_led(
    evidence: Evidence, broken: Sequence[Judged], findings: Sequence[Finding]
) -> list[Finding]:
    """Without the findings that a replica which leads its own statistic shows none of.

    Its examples make of the statistic what they make of it on one device, so its loss
    and gradients are those of its shard alone. If they are, nothing else is wrong with
    them, and those of other replicas are made of a statistic that is not theirs. What
    nothing explains may be made of it in any case, but for the led state itself. If
    nothing is told of that, it follows from what else is wrong, as an average of the
    weights does.
    """
    told = {path for found in findings for path in found.variables}
    led = [
        j.pair
        for j in broken
        if j.comparison.relation == "led"
        and j.pair is not None
        and j.pair.key.variable in told
    ]
    if not led:
        return list(findings)
    step = min(pair.key.step for pair in led)
    own = {
        pair.key.replica
        for pair in led
        if pair.key.step == step and find_leader(evidence, pair) == pair.key.replica
    }
    is_excused = bool(own) and _are_right_alone(evidence, own, step)
    state = {pair.key.variable for pair in led}
    return [
        f
        for f in findings
        if f.step < step
        or not (
            (f.code == "unexplained" and state.isdisjoint(f.variables))
            or (is_excused and f.phase in COMPUTED)
        )
    ]


def _are_right_alone(evidence: Evidence, replicas: Collection[int], step: int) -> bool:
    """Whether what replicas compute is their part, given what a shard alone gives."""
    noise = measure_noise(evidence)
    nature = Nature(kind="sum")
    if not evidence.measure.shards_known:
        nature = find_nature(evidence, noise)
    shards = evidence.reference.get_shards(step)
    weights = {phase: nature.weigh(shards, phase) for phase in COMPUTED}
    found = [
        (key, densify(value), alone)
        for phase in COMPUTED
        for key, value in evidence.observed.select(step=step, phase=phase)
        if key.replica in replicas
        and (alone := evidence.reference.get(key)) is not None
    ]
    if nature.kind is None or not found:
        return False
    return all(
        np.all(
            np.abs(seen - weights[key.phase][key.replica] * densify(alone))
            <= noise.find_margin(key, densify(alone)).bound
        )
        for key, seen, alone in found
    )
