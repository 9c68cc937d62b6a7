"""Shards that round more than the whole batch, as those of few examples may.

What is normalised by its own examples is divided by how much they differ. How far a
shard rounds is told by the shard with each of its examples twice.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from grouped_losses import by_statistics
from grouped_training import SHARDS, Simulator

from distbench.compare.state.measured_noise import measure_noise
from distbench.evidence import Evidence
from distbench.trace import TraceKey

ROUNDED = 3e-5
"""Of a gradient: hundreds of units, and far more than the whole batch's noise."""
FEWEST = SHARDS.index(min(SHARDS))
KEY = TraceKey(step=1, phase="local_gradient", variable="kernel", replica=FEWEST)


def round_doubled(evidence: Evidence) -> Evidence:
    """The doubled shards of that replica round as much."""
    doubled = evidence.probes["doubled"]
    values = dict(doubled.values)
    rng = np.random.default_rng(5)
    for key, value in doubled.select(phase="local_gradient", replica=FEWEST):
        size = ROUNDED * np.max(np.abs(value))
        values[key] = np.float32(value + size * rng.choice([-1, 1], np.shape(value)))
    probes = {**evidence.probes, "doubled": replace(doubled, values=values)}
    return replace(evidence, probes=probes)


@pytest.mark.parametrize("weight", [1.0, 0.125])
def test_what_a_shard_rounds_is_allowed_however_little_it_counts(weight: float) -> None:
    evidence = Simulator(by_statistics).make_evidence()
    shard = np.asarray(evidence.reference.values[KEY])
    size = float(np.max(np.abs(shard)))
    due = weight * shard
    before = measure_noise(evidence).find_repeated_margin(KEY, due)
    after = measure_noise(round_doubled(evidence)).find_repeated_margin(KEY, due)
    assert before.widest < 0.5 * ROUNDED * size
    assert ROUNDED * size < after.widest < 30 * ROUNDED * size
    assert after.ratio > before.ratio


def test_what_is_made_of_a_sum_and_a_mean_tells_nothing_of_rounding() -> None:
    evidence = Simulator(by_statistics).make_evidence()
    doubled = evidence.probes["doubled"]
    halfway = {
        key: value if key.phase == "loss" else 0.75 * np.asarray(value)
        for key, value in doubled.values.items()
    }
    mixed = replace(doubled, values=halfway)
    evidence = replace(evidence, probes={**evidence.probes, "doubled": mixed})
    found = measure_noise(evidence).alone_sizes
    assert {key.phase for key in found} == {"loss"}
    assert TraceKey(step=0, phase="loss", variable="", replica=0) in found
