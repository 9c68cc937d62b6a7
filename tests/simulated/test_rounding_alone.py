"""A gradient of which all terms cancel is rounding, of a shard maybe more."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from training_simulator import BIAS, observe

from distbench.compare.state.measured_noise import measure_noise
from distbench.trace import WHOLE, TraceKey

KEY = TraceKey(step=0, phase="local_gradient", variable=BIAS, replica=WHOLE)
OF_SHARDS = 20.0
"""How many times as large as the whole batch's the gradients of shards are."""


def measure_bound(size: float) -> float:
    """The bound of a bias whose gradient is noise of this size, and of other signs."""
    evidence = observe()
    rng = np.random.default_rng(2)

    def draw(trace):
        values = dict(trace.values)
        for key in values:
            if key.phase == "local_gradient" and key.variable == BIAS:
                times = 1.0 if key.replica == WHOLE else OF_SHARDS
                noise = rng.choice([-1.0, 1.0], values[key].shape) * size * times
                values[key] = noise.astype("float32")
        return replace(trace, values=values)

    moved = replace(
        evidence,
        reference=draw(evidence.reference),
        twins=tuple(draw(twin) for twin in evidence.twins),
    )
    return measure_noise(moved).find_margin(KEY, np.full(6, size)).widest / size


@pytest.mark.parametrize("size", [1e-8, 1e-6])
def test_rounding_of_a_shard_may_be_as_much_as_one_device_shows(size):
    # Two of them have other signs at most.
    assert 4 * OF_SHARDS < measure_bound(size) < 2 * OF_SHARDS * measure_bound(0.1)


def test_a_gradient_in_a_bias_that_should_have_none_is_beyond_it():
    assert 1e-6 * measure_bound(1e-6) < 1e-2
